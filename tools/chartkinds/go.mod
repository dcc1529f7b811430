// The projects of whose kinds the chart of the hub makes objects. Only their definitions are read, by published-templates.
module github.com/drover-dev/drover/tools/chartkinds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.89.0
	sigs.k8s.io/gateway-api v1.6.3
)
