package clusters

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/testenv"
)

// The groups of bootstrap and control plane providers.
const (
	bootstrapGroup    = "bootstrap.cluster.x-k8s.io"
	controlPlaneGroup = "controlplane.cluster.x-k8s.io"
)

// TestOtherProviders: Cluster API in the hub handles a cluster in which nothing is of this project, such as one of kubeadm, with a
// MachineDeployment and a MachinePool, up to its deletion. That the hub has the rights for it is checked when all tests have ended.
func TestOtherProviders(t *testing.T) {
	t.Parallel()
	for _, kind := range []schema.GroupKind{
		{Group: bootstrapGroup, Kind: "OtherConfig"}, {Group: bootstrapGroup, Kind: "OtherConfigTemplate"},
		{Group: controlPlaneGroup, Kind: "OtherControlPlane"}, {Group: infraGroup, Kind: "OtherCluster"},
		{Group: infraGroup, Kind: "OtherMachine"}, {Group: infraGroup, Kind: "OtherMachineTemplate"},
		{Group: infraGroup, Kind: "OtherMachinePool"},
	} {
		if err := defineIn(t.Context(), kind.Group, kind.Kind); err != nil {
			t.Fatal(err)
		}
	}
	meta := metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "other"}
	ref := func(group, kind string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: meta.Name}
	}
	cluster := &clusterv1.Cluster{ObjectMeta: meta}
	cluster.Spec.ControlPlaneRef, cluster.Spec.InfrastructureRef = ref(controlPlaneGroup, "OtherControlPlane"), ref(infraGroup, "OtherCluster")
	workers := &clusterv1.MachineDeployment{ObjectMeta: meta}
	workers.Spec.ClusterName, workers.Spec.Replicas = cluster.Name, ptr.To[int32](1)
	workers.Spec.Template.Spec.ClusterName = cluster.Name
	workers.Spec.Template.Spec.Bootstrap.ConfigRef = ref(bootstrapGroup, "OtherConfigTemplate")
	workers.Spec.Template.Spec.InfrastructureRef = ref(infraGroup, "OtherMachineTemplate")
	pool := &clusterv1.MachinePool{ObjectMeta: meta}
	pool.Spec.ClusterName, pool.Spec.Replicas = cluster.Name, ptr.To[int32](1)
	pool.Spec.Template.Spec.ClusterName = cluster.Name
	pool.Spec.Template.Spec.Bootstrap.ConfigRef = ref(bootstrapGroup, "OtherConfig")
	pool.Spec.Template.Spec.InfrastructureRef = ref(infraGroup, "OtherMachinePool")
	controlPlane := other(meta, controlPlaneGroup, "OtherControlPlane")
	env.Create(t, controlPlane, other(meta, infraGroup, "OtherCluster"), other(meta, bootstrapGroup, "OtherConfigTemplate"),
		other(meta, infraGroup, "OtherMachineTemplate"), other(meta, bootstrapGroup, "OtherConfig"), other(meta, infraGroup, "OtherMachinePool"),
		cluster, workers, pool)

	testenv.Until(t, "the control plane to have an owner", func() error {
		return owned(t, controlPlane, "Cluster")
	})
	testenv.Condition(t, env, pool, clusterv1.PausedCondition, metav1.ConditionFalse, "")
	configs := &unstructured.UnstructuredList{}
	configs.SetGroupVersionKind(schema.GroupVersionKind{Group: bootstrapGroup, Version: "v1", Kind: "OtherConfigList"})
	testenv.Until(t, "bootstrap configurations of the Machine and of the MachinePool", func() error {
		if err := env.Client.List(t.Context(), configs, client.InNamespace(meta.Namespace)); err != nil {
			return err
		}
		if len(configs.Items) != 2 {
			return fmt.Errorf("there are %d", len(configs.Items))
		}
		for i := range configs.Items {
			owner := "Machine"
			if configs.Items[i].GetName() == pool.Name {
				owner = "MachinePool"
			}
			if err := owned(t, &configs.Items[i], owner); err != nil {
				return err
			}
		}
		return nil
	})

	env.Delete(t, cluster)
	for i := range configs.Items {
		env.Gone(t, &configs.Items[i])
	}
	for _, object := range []client.Object{pool, workers, controlPlane, cluster} {
		env.Gone(t, object)
	}
}

// other is an object of a kind that the test has defined. The kinds of templates need what is copied from them.
func other(meta metav1.ObjectMeta, group, kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}},
	}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	object.SetNamespace(meta.Namespace)
	object.SetName(meta.Name)
	return object
}

// owned returns an error unless an object has an owner of a kind.
func owned(t *testing.T, object client.Object, kind string) error {
	t.Helper()
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	if !slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == kind }) {
		return errors.New(object.GetName() + " has no owner of kind " + kind)
	}
	return nil
}
