package ownership

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// ControlPlane returns the RKEControlPlane of a Cluster. It is nil without a Cause if the Cluster has none, or one of another provider.
func ControlPlane(ctx context.Context, from client.Reader, cluster *clusterv1.Cluster) (*rkev1.RKEControlPlane, *cause.Cause, error) {
	ref := cluster.Spec.ControlPlaneRef
	if !rkev1.Refers(ref, "RKEControlPlane") {
		return nil, nil, nil
	}
	controlPlane := &rkev1.RKEControlPlane{}
	found, err := objects.Get(ctx, from, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, controlPlane)
	if err != nil || !found {
		return nil, nil, err
	}
	if refusal := OfCluster(controlPlane, cluster); refusal != nil {
		return nil, refusal, nil
	}
	return controlPlane, nil, nil
}

// PlanOwners returns the RKEBootstrap that a plan Secret belongs to, and the Machine that this belongs to; nil for those that do not exist.
// The labels of a plan Secret are for finding it, and prove nothing.
func PlanOwners(ctx context.Context, from client.Reader, plan *corev1.Secret) (*rkev1.RKEBootstrap, *clusterv1.Machine, error) {
	ref := rkev1.BootstrapOwner(plan)
	if ref == nil {
		return nil, nil, nil
	}
	bootstrap := &rkev1.RKEBootstrap{}
	found, err := objects.Get(ctx, from, client.ObjectKey{Namespace: plan.Namespace, Name: ref.Name}, bootstrap)
	if err != nil || !found {
		return nil, nil, err
	}
	if !bootstrap.Owns(plan) || plan.Name != rkev1.PlanSecretName(bootstrap.Name) {
		return nil, nil, nil
	}
	machine, _, err := Machine(ctx, from, bootstrap)
	return bootstrap, machine, err
}
