package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
)

// writeBackScale writes to the pool what somebody has scaled its MachineDeployment to. The pool is left for the next pass then, which sees
// the Cluster as it has become.
func (r *Reconciler) writeBackScale(ctx context.Context, p *poolScope) error {
	if p.deployment == nil {
		return nil
	}
	if _, scaled := pool.Scaled(p.spec, p.deployment); !scaled {
		return nil
	}
	// The cache may show the MachineDeployment of before the hub's own last write, and a user's change of the pool since then would be lost.
	live := &clusterv1.MachineDeployment{}
	found, err := read(ctx, r.Live, client.ObjectKeyFromObject(p.deployment), live)
	if err != nil || !found {
		return err
	}
	replicas, scaled := pool.Scaled(p.spec, live)
	if !scaled {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("The MachineDeployment of a machine pool was scaled; the pool follows", "pool", p.spec.Name,
		"from", pool.Quantity(p.spec), "to", replicas)
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

// quantityPatch changes the quantity of one pool and nothing else, and only if nobody has changed the Cluster in between.
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
