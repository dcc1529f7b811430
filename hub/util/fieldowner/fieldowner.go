// Package fieldowner has the field owners that more than one package writes as or knows.
package fieldowner

import "sigs.k8s.io/controller-runtime/pkg/client"

// Gateway is the field owner of what the gateway writes for machines and agents. The embedded API server knows these requests by it.
const Gateway = client.FieldOwner("drover-gateway")
