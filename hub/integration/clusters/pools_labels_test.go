package clusters

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestPoolLabels: machines, and what belongs to them, have a label for as long as their pool has it, whether they were made with it or got
// it later.
func TestPoolLabels(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	env.Create(t, providerObject("TestCluster", namespace, "labels", map[string]any{"region": "here"}),
		machineTemplate(namespace, "machines", "small"))
	cluster := newPooled(namespace, "labels")
	config := cluster.Spec.RKEConfig
	plain := config.MachinePools[1]
	plain.Name, plain.Quantity = "plain", ptr.To[int32](1)
	config.MachinePools[1].Labels = map[string]string{"first": "a"}
	config.MachinePools = append(config.MachinePools, plain)
	env.Create(t, cluster)
	waitForMachines(t, cluster, 4)
	for _, labels := range []map[string]string{{"first": "a", "later": "b"}, {"later": "b"}, nil} {
		testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) {
			c.Spec.RKEConfig.MachinePools[1].Labels, c.Spec.RKEConfig.MachinePools[2].Labels = labels, labels
		})
		testenv.Until(t, fmt.Sprintf("workers to have the labels %v", labels), func() error { return labeled(t, cluster, labels) })
	}
}

// labeled returns an error unless the workers of the cluster, and what belongs to them, have these labels of first and later.
func labeled(t *testing.T, cluster *provisioningv1.Cluster, labels map[string]string) error {
	t.Helper()
	for _, machine := range waitForMachines(t, cluster, 4) {
		if machine.Labels[rkev1.MachinePoolNameLabel] == "servers" {
			continue
		}
		named := func(name string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}
		}
		for _, object := range []client.Object{
			&clusterv1.Machine{ObjectMeta: named(machine.Name)},
			&rkev1.RKEBootstrap{ObjectMeta: named(machine.Spec.Bootstrap.ConfigRef.Name)},
			&corev1.Secret{ObjectMeta: named(rkev1.PlanSecretName(machine.Spec.Bootstrap.ConfigRef.Name))},
			providerObject("TestMachine", cluster.Namespace, machine.Spec.InfrastructureRef.Name, nil),
		} {
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			for _, key := range []string{"first", "later"} {
				if value, found := object.GetLabels()[key]; value != labels[key] || found != (labels[key] != "") {
					return fmt.Errorf("%T %s has %v", object, object.GetName(), object.GetLabels())
				}
			}
		}
	}
	return nil
}
