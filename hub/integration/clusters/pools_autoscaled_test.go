package clusters

import (
	"fmt"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestAutoscaledPool: a pool without a quantity keeps the machines that an autoscaler has asked for when it is changed, or applied again
// without the quantity that an earlier hub has written to it.
func TestAutoscaledPool(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "autoscaled")
	change := func(set func(*provisioningv1.RKEMachinePool)) {
		t.Helper()
		testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { set(&c.Spec.RKEConfig.MachinePools[1]) })
	}
	has := func(quantity *int32, replicas int32, autoscaled string) {
		t.Helper()
		testenv.Until(t, fmt.Sprintf("the MachineDeployment to have %d replicas", replicas), func() error {
			env.Get(t, cluster.Namespace, cluster.Name, cluster)
			p, md := cluster.Spec.RKEConfig.MachinePools[1], deployment(t, cluster, "workers")
			got, passedOn := md.Annotations[rkev1.AutoscaledAnnotation], md.Spec.Template.Labels["team"] == p.Labels["team"]
			if !ptr.Equal(p.Quantity, quantity) || *md.Spec.Replicas != replicas || got != autoscaled || !passedOn {
				return fmt.Errorf("the pool is %+v, the MachineDeployment has %d replicas and %q", p, *md.Spec.Replicas, got)
			}
			return nil
		})
	}
	change(func(p *provisioningv1.RKEMachinePool) {
		p.Quantity, p.AutoscalingMinSize, p.AutoscalingMaxSize = nil, ptr.To[int32](1), ptr.To[int32](4)
	})
	has(nil, 2, "true")
	scale := func(replicas int32) {
		t.Helper()
		testenv.OnConflict(t, "scaling the pool", func() error {
			return env.Client.SubResource("scale").Update(t.Context(), deployment(t, cluster, "workers"),
				client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}))
		})
	}
	scale(3)
	has(nil, 3, "true")
	change(func(p *provisioningv1.RKEMachinePool) { p.Labels = map[string]string{"team": "a"} })
	has(nil, 3, "true")
	waitForMachines(t, cluster, 4)
	change(func(p *provisioningv1.RKEMachinePool) { p.Quantity = ptr.To[int32](1) })
	has(ptr.To[int32](1), 1, "")
	waitForMachines(t, cluster, 2)
	change(func(p *provisioningv1.RKEMachinePool) { p.Quantity = nil })
	has(nil, 1, "true")
	scale(2)
	has(nil, 2, "true")
	change(func(p *provisioningv1.RKEMachinePool) { p.AutoscalingMinSize = ptr.To[int32](3) })
	has(nil, 3, "true")
	scale(4)
	has(nil, 4, "true")
	change(func(p *provisioningv1.RKEMachinePool) { p.AutoscalingMinSize, p.AutoscalingMaxSize = nil, nil })
	has(ptr.To[int32](4), 4, "")
}
