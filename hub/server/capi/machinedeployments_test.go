package capi

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

type reconcileKey struct{}

// TestMachineSetsOfCluster: the reconcile of a MachineDeployment gets the MachineSets of its cluster, and no others that reconciles of
// others have asked for meanwhile. What is no reconcile gets all.
func TestMachineSetsOfCluster(t *testing.T) {
	meta := func(name, cluster string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
	}
	var objects []client.Object
	for _, cluster := range []string{"blue", "green"} {
		objects = append(objects,
			&clusterv1.MachineDeployment{ObjectMeta: meta(cluster, cluster), Spec: clusterv1.MachineDeploymentSpec{ClusterName: cluster}},
			&clusterv1.MachineSet{ObjectMeta: meta(cluster+"-1", cluster)})
	}
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme)
	c := newMachineDeploymentClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build())
	c.reconcileID = func(ctx context.Context) types.UID {
		id, _ := ctx.Value(reconcileKey{}).(types.UID)
		return id
	}
	in := func(id string) context.Context { return context.WithValue(t.Context(), reconcileKey{}, types.UID(id)) }
	get := func(ctx context.Context, name string) {
		t.Helper()
		if err := c.Get(ctx, client.ObjectKey{Namespace: "fleet", Name: name}, &clusterv1.MachineDeployment{}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(ctx context.Context) (names []string) {
		t.Helper()
		var sets clusterv1.MachineSetList
		if err := c.List(ctx, &sets, client.InNamespace("fleet")); err != nil {
			t.Fatal(err)
		}
		for _, set := range sets.Items {
			names = append(names, set.Name)
		}
		return names
	}
	get(in("1"), "blue")
	get(in("2"), "green")
	if names := list(in("1")); len(names) != 1 || names[0] != "blue-1" {
		t.Errorf("blue has %q", names)
	}
	if names := list(in("2")); len(names) != 1 || names[0] != "green-1" {
		t.Errorf("green has %q", names)
	}
	if c.clusters.Len() != 0 {
		t.Errorf("%d reconciles are remembered that have listed", c.clusters.Len())
	}
	get(t.Context(), "blue")
	if names := list(t.Context()); len(names) != 2 {
		t.Errorf("without a reconcile there are %q", names)
	}
	var deployments clusterv1.MachineDeploymentList
	if err := c.List(in("3"), &deployments); err != nil || len(deployments.Items) != 2 {
		t.Errorf("%d MachineDeployments, %v", len(deployments.Items), err)
	}
}
