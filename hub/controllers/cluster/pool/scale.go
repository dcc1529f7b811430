package pool

import (
	"strconv"

	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Scaled returns whether a user or an autoscaler has scaled the MachineDeployment of a pool since the hub wrote it, and to how many
// replicas. An annotation, written together with the replicas, has the quantity of the hub's last write. If the pool has changed too, the
// pool wins.
func Scaled(p *provisioningv1.RKEMachinePool, md *clusterv1.MachineDeployment) (int32, bool) {
	if !Applied(p, md) {
		return 0, false
	}
	replicas := ptr.Deref(md.Spec.Replicas, p.DesiredQuantity())
	return replicas, replicas != p.DesiredQuantity()
}

// Applied returns whether the hub has written the quantity of a pool to its MachineDeployment, whoever has scaled that since. A quantity
// that is set after an autoscaler has scaled the pool was not; without one, no machine must go because the limits of the autoscaler did.
func Applied(p *provisioningv1.RKEMachinePool, md *clusterv1.MachineDeployment) bool {
	if md.Annotations[rkev1.AutoscaledAnnotation] == "true" {
		return p.Quantity == nil
	}
	applied, err := strconv.ParseInt(md.Annotations[rkev1.AppliedQuantityAnnotation], 10, 32)
	return err == nil && int32(applied) == p.DesiredQuantity()
}
