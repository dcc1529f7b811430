package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/util/objects"
)

// writeBackScale writes the replicas of a MachineDeployment that was scaled, by an autoscaler for instance, to the pool. The pool is left
// to the next reconcile then, which reads the changed Cluster. A pool without a quantity and with the limits of an autoscaler stays as it
// is: kubectl apply of an unchanged manifest would remove the quantity again, and with it all machines beyond the minimum.
func (r *Reconciler) writeBackScale(ctx context.Context, p *poolScope) error {
	if p.deployment == nil || pool.Autoscaled(p.spec) {
		return nil
	}
	if _, scaled := pool.Scaled(p.spec, p.deployment); !p.adopted && !scaled && pool.Applied(p.spec, p.deployment) {
		return nil
	}
	// The cache may not have seen the hub's own last write yet. A user's change of the pool since then would be lost, and so would one of the
	// replicas: the quantity that looks new is applied already.
	live := &clusterv1.MachineDeployment{}
	found, err := objects.Get(ctx, r.Live, client.ObjectKeyFromObject(p.deployment), live)
	if err != nil || !found {
		return err
	}
	replicas, scaled := pool.Scaled(p.spec, live)
	if p.adopted && live.Annotations[rkev1.AppliedQuantityAnnotation] == "" {
		// An autoscaler may have changed it, and Rancher leaves a pool without a quantity to that. No machine must go because of the pool.
		replicas = ptr.Deref(live.Spec.Replicas, p.spec.DesiredQuantity())
		scaled = replicas != p.spec.DesiredQuantity()
	}
	if !scaled {
		return nil
	}
	if replicas == 0 && !p.adopted {
		if last, err := r.isLastEtcd(ctx, p); err != nil || last {
			return err // the quantity is applied again: while a pool asks for etcd, the hook of its deleted machines keeps the data
		}
	}
	ctrl.LoggerFrom(ctx).Info("Writing the replicas of a scaled MachineDeployment to its pool", "pool", p.spec.Name,
		"from", p.spec.DesiredQuantity(), "to", replicas)
	patch, err := quantityPatch(p.cluster, p.spec.Name, replicas)
	if err != nil {
		return err
	}
	object := &provisioningv1.Cluster{}
	object.Namespace, object.Name = p.cluster.Namespace, p.cluster.Name
	if err := r.Client.Patch(ctx, object, patch, fieldOwner); err != nil {
		return fmt.Errorf("writing %s: %w", pool.Field(p.spec.Name, "quantity"), err)
	}
	return errPoolWaits
}

// desiredDeployment is the MachineDeployment of a pool. An autoscaler alone decides the replicas of one that exists: the webhook of Cluster
// API keeps them when the hub gives them up, within the limits of then. Later, what nobody applies stays as it is, and an autoscaler does
// not make the machines that a raised minimum asks for.
func desiredDeployment(p *poolScope, templates pool.Templates) (*clusterv1.MachineDeployment, error) {
	deployment, err := pool.MachineDeployment(p.cluster, p.spec, templates)
	if err == nil && p.deployment != nil && pool.Autoscaled(p.spec) {
		deployment.Spec.Replicas = nil
		if least := *p.spec.AutoscalingMinSize; ptr.Deref(p.deployment.Spec.Replicas, least) < least {
			deployment.Spec.Replicas = &least
		}
	}
	return deployment, err
}

// wantedMachines is how many machines a pool with a MachineDeployment is to have.
func wantedMachines(p *poolScope) int32 {
	if pool.Autoscaled(p.spec) {
		return ptr.Deref(p.deployment.Spec.Replicas, p.spec.DesiredQuantity())
	}
	return p.spec.DesiredQuantity()
}

// quantityPatch changes the quantity of one pool, if the Cluster has not changed since it was read.
func quantityPatch(cluster *provisioningv1.Cluster, name string, quantity int32) (client.Patch, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	index := slices.IndexFunc(cluster.Spec.RKEConfig.MachinePools, func(p provisioningv1.RKEMachinePool) bool { return p.Name == name })
	raw, err := json.Marshal([]operation{
		{"replace", "/metadata/resourceVersion", cluster.ResourceVersion},
		{"add", fmt.Sprintf("/spec/rkeConfig/machinePools/%d/quantity", index), quantity},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the quantity of a pool: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, raw), nil
}
