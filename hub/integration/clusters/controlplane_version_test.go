package clusters

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestSpecVersion: Cluster API creates the first machines of a control plane with spec.version, which reports none before it has some.
func TestSpecVersion(t *testing.T) {
	t.Parallel()
	w := newControlPlaneCluster(t, "192.0.2.40", func(c *rkev1.RKEControlPlane) {
		c.Spec.Version, c.Spec.KubernetesVersion = "v1.36.3+k3s1", ""
	})
	template := infra("PlaneMachineTemplate", w.namespace, "servers", map[string]any{"template": map[string]any{"spec": map[string]any{}}})
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "servers"}
	servers := &clusterv1.MachineDeployment{ObjectMeta: meta}
	servers.Spec.ClusterName, servers.Spec.Replicas = "c", ptr.To[int32](1)
	servers.Spec.Template.Labels = map[string]string{rkev1.EtcdRoleLabel: "true", rkev1.ControlPlaneRoleLabel: "true",
		rkev1.WorkerRoleLabel: "true", clusterv1.MachineControlPlaneLabel: ""}
	servers.Spec.Template.Spec.ClusterName = "c"
	servers.Spec.Template.Spec.Version = "v1.36.3+k3s1"
	servers.Spec.Template.Spec.InfrastructureRef = ref(infraGroup, "PlaneMachineTemplate", "servers")
	servers.Spec.Template.Spec.Bootstrap.ConfigRef = ref(rkev1.GroupVersion.Group, "RKEBootstrapTemplate", "servers")
	env.Create(t, template, &rkev1.RKEBootstrapTemplate{ObjectMeta: meta}, servers)
	testenv.Until(t, "the first Machine", func() error {
		var machines clusterv1.MachineList
		if err := env.Client.List(t.Context(), &machines, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		if len(machines.Items) != 1 {
			return fmt.Errorf("there are %d", len(machines.Items))
		}
		return nil
	})
}
