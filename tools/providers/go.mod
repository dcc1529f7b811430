// The infrastructure providers for whose machines there are cluster templates. Only their definitions are read, by published-templates.
module github.com/drover-dev/drover/tools/providers

go 1.26.0

require (
	sigs.k8s.io/cluster-api-provider-aws/v2 v2.13.0
	sigs.k8s.io/cluster-api-provider-azure v1.21.0
	sigs.k8s.io/cluster-api-provider-vsphere v1.14.0
	sigs.k8s.io/cluster-api/test v1.14.2
)
