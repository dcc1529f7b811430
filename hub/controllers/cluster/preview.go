package cluster

import (
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// ControlPlane is the RKEControlPlane that is made of a Cluster, for those who ask what a change of the Cluster would do.
func ControlPlane(cluster *provisioningv1.Cluster) (*rkev1.RKEControlPlane, error) {
	return controlPlane(cluster)
}
