package rkecontrolplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestLoadForeign: what only says to belong to the cluster does not get its plans, and its plan Secret is not written.
func TestLoadForeign(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(in *shelf)
		// machine and secret report whether the Machine and its plan Secret count.
		machine, secret bool
	}{
		{name: "its own", set: func(*shelf) {}, machine: true, secret: true},
		{name: "a Machine of another cluster with the label of this one",
			set: func(in *shelf) { in.machines.Items[0].Spec.ClusterName = "other" }},
		{name: "a Machine that names the RKEBootstrap of another one", set: func(in *shelf) {
			in.machines.Items[0].Name, in.machines.Items[0].UID = "thief", "thief"
		}},
		{name: "an RKEBootstrap of an earlier Machine", set: func(in *shelf) { in.bootstraps.Items[0].OwnerReferences[0].UID = "earlier" }},
		{name: "an RKEBootstrap that Cluster API has not seen", set: func(in *shelf) { in.bootstraps.Items[0].OwnerReferences = nil }},
		{name: "a plan Secret by name alone", set: func(in *shelf) { in.secrets.Items[0].OwnerReferences = nil }, machine: true},
		{name: "a plan Secret of an earlier RKEBootstrap",
			set: func(in *shelf) { in.secrets.Items[0].OwnerReferences[0].UID = types.UID("earlier") }, machine: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, in, _ := bigCluster(t, 1)
			tt.set(in)
			s := &scope{controlPlane: &rkev1.RKEControlPlane{}, cluster: &clusterv1.Cluster{}}
			s.cluster.Name = "c"
			if err := r.loadMachines(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if machine := len(s.machines) == 1; machine != tt.machine || machine && (s.machines[0].secret != nil) != tt.secret {
				t.Errorf("the cluster has %d machines, and of the first the plan Secret: %t", len(s.machines), machine && s.machines[0].secret != nil)
			}
		})
	}
}

// TestOtherBootstrap: machines with bootstrap data of another provider, or of a user, are none that the hub waits for.
func TestOtherBootstrap(t *testing.T) {
	deployment := func(name string, bootstrap clusterv1.Bootstrap) *clusterv1.MachineDeployment {
		d := pool(rkev1.WorkerRoleLabel, 2)
		d.Namespace, d.Name, d.Labels = "fleet", name, map[string]string{clusterv1.ClusterNameLabel: "c"}
		d.Spec.ClusterName, d.Spec.Template.Spec.Bootstrap = "c", bootstrap
		return &d
	}
	of := func(group, kind string) clusterv1.Bootstrap {
		return clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: "workers"}}
	}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)).WithObjects(
		deployment("own", of(rkev1.GroupVersion.Group, "RKEBootstrapTemplate")),
		deployment("kubeadm", of("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate")),
		deployment("data", clusterv1.Bootstrap{DataSecretName: new("data")}),
	).Build()
	meta := metav1.ObjectMeta{Namespace: "fleet", Name: "c"}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: meta}, cluster: &clusterv1.Cluster{ObjectMeta: meta}}
	if err := loadFrom(t.Context(), s, c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"own has 0 of 2"}, s.missing); diff != "" {
		t.Errorf("the missing Machines (-want +got):\n%s", diff)
	}
}
