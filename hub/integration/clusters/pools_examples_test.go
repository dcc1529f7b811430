package clusters

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestExamples applies manifests for three providers and waits for their machines; then it deletes the cluster, and only the user's own
// templates remain.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"vsphere", "aws", "azure"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := env.Namespace(t)
			objects, err := readObjects("testdata/" + name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range objects {
				object.SetNamespace(namespace)
				env.Create(t, object)
			}
			cluster := &provisioningv1.Cluster{}
			env.Get(t, namespace, "my-cluster", cluster)
			testenv.Condition(t, env, cluster, "RKECluster", metav1.ConditionTrue, "")

			md := &clusterv1.MachineDeployment{}
			testenv.Until(t, "the MachineDeployment", func() error {
				return env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "my-cluster-pool1"}, md)
			})
			ref := md.Spec.Template.Spec.InfrastructureRef
			if ref.Kind != objects[1].GetKind() || ref.APIGroup != infraGroup || ref.Name == objects[1].GetName() {
				t.Errorf("machines are created from %+v", ref)
			}
			machines := waitForMachines(t, cluster, 3)
			for _, machine := range machines {
				labels := machine.Labels
				if labels[rkev1.EtcdRoleLabel] != "true" || labels[rkev1.MachinePoolNameLabel] != "pool1" ||
					labels[rkev1.ClusterNameLabel] != "my-cluster" {
					t.Errorf("machine %s has the labels %v", machine.Name, labels)
				}
			}
			env.Delete(t, cluster)
			env.Gone(t, cluster)
			env.Left(t, namespace, objects[1].GetKind()+" my-cluster-machines")
		})
	}
}

// waitForMachines waits until a cluster has a number of Machines with hosts.
func waitForMachines(t *testing.T, cluster *provisioningv1.Cluster, want int) []clusterv1.Machine {
	t.Helper()
	var list clusterv1.MachineList
	testenv.Until(t, fmt.Sprintf("%d machines", want), func() error {
		err := env.Client.List(t.Context(), &list, client.InNamespace(cluster.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if machine := &list.Items[i]; machine.DeletionTimestamp.IsZero() && machine.Spec.ProviderID != "" {
				ready++
			}
		}
		if ready != want || len(list.Items) != want {
			return fmt.Errorf("there are %d, %d of them with a host", len(list.Items), ready)
		}
		return nil
	})
	return list.Items
}

// providerObject returns an object of the provider Test.
func providerObject(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: infraGroup, Version: "v1beta2", Kind: kind})
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func machineTemplate(namespace, name, size string) *unstructured.Unstructured {
	return providerObject("TestMachineTemplate", namespace, name,
		map[string]any{"template": map[string]any{"spec": map[string]any{"size": size}}})
}
