package cluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/objects"
)

// TestPoolThatTheCacheHasNotSeen: a MachineDeployment goes with all its machines, and only where the Cluster as it is now has no such pool.
func TestPoolThatTheCacheHasNotSeen(t *testing.T) {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod", Generation: 2}}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod-new",
		Labels: map[string]string{rkev1.MachinePoolNameLabel: "new"}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(deployment).Build()
	r := &Reconciler{Client: c, Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).Build()}
	for _, generation := range []int64{1, 2} {
		cached, want := cluster.DeepCopy(), generation == 1
		cached.Generation = generation
		if err := r.removePool(t.Context(), cached, deployment); err != nil {
			t.Fatal(err)
		}
		there, err := objects.Get(t.Context(), c, client.ObjectKeyFromObject(deployment), &clusterv1.MachineDeployment{})
		if err != nil || there != want {
			t.Errorf("generation %d: the MachineDeployment is there: %v (%v)", generation, there, err)
		}
	}
}

// TestServersStay: a pool of servers that is removed from the spec of a cluster that was started stays while its data would be deleted with
// its machines.
func TestServersStay(t *testing.T) {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	custom := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-default", Name: "custom",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "one", rkev1.EtcdRoleLabel: "true"}}}
	pooled := custom.DeepCopy()
	pooled.Labels[clusterv1.MachineDeploymentNameLabel] = "one-old"
	const kept = "the pool old is not removed: no other machine of the cluster has the role etcd"
	servers := func(p *provisioningv1.RKEMachinePool) { p.EtcdRole = true }
	workers := func(p *provisioningv1.RKEMachinePool) { p.WorkerRole = true }
	for name, tc := range map[string]struct {
		// role of the pool that was removed; next has the other one in the spec, which is invalid; nil for none. made has the MachineDeployment
		// that this has; nil for none.
		role    string
		next    func(*provisioningv1.RKEMachinePool)
		made    func(*clusterv1.MachineDeployment)
		machine *clusterv1.Machine
		stopped bool
		stays   bool
		says    string
	}{
		"others cannot be created": {role: rkev1.EtcdRoleLabel, next: servers, machine: custom, stays: true},
		"nor a control plane":      {role: rkev1.ControlPlaneRoleLabel, next: servers, machine: custom, stays: true},
		"others are there":         {role: rkev1.EtcdRoleLabel, next: servers, machine: pooled, made: func(*clusterv1.MachineDeployment) {}},
		"others are being deleted": {role: rkev1.EtcdRoleLabel, next: servers, machine: pooled, stays: true,
			made: func(md *clusterv1.MachineDeployment) {
				md.DeletionTimestamp, md.Finalizers = new(metav1.Now()), []string{clusterv1.MachineDeploymentFinalizer}
			}},
		"others have no replicas yet": {role: rkev1.EtcdRoleLabel, next: servers, machine: pooled, stays: true,
			made: func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = new(int32(0)) }},
		"no others are wanted":          {role: rkev1.EtcdRoleLabel, next: workers, machine: pooled, stays: true, says: kept},
		"no pool is left":               {role: rkev1.EtcdRoleLabel, machine: pooled, stays: true, says: kept},
		"a machine has registered":      {role: rkev1.EtcdRoleLabel, machine: custom},
		"a control plane":               {role: rkev1.ControlPlaneRoleLabel, machine: pooled},
		"workers":                       {role: rkev1.WorkerRoleLabel, next: servers, machine: pooled},
		"the cluster was never started": {role: rkev1.EtcdRoleLabel, next: servers, machine: pooled, stopped: true},
	} {
		cluster := testCluster()
		if tc.next != nil {
			next := poolSpec("new") // its reference names no machine template
			next.MachineConfigRef = &provisioningv1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "TestMachine",
				Name: "m"}
			tc.next(next)
			cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*next}
		}
		old := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "one-old",
			Labels:          pool.Labels(cluster.Name, "old"),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, provisioningv1.GroupVersion.WithKind("Cluster"))}}}
		old.Spec.ClusterName, old.Spec.Template.Labels = cluster.Name, map[string]string{tc.role: "true"}
		all := []client.Object{old, tc.machine.DeepCopy(), cluster.DeepCopy()}
		if tc.made != nil {
			md := old.DeepCopy()
			md.Name, md.Labels = "one-new", pool.Labels(cluster.Name, "new")
			tc.made(md)
			all = append(all, md)
		}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build()
		s := &scope{cluster: cluster, passedOn: true, capiCluster: &clusterv1.Cluster{}}
		s.capiCluster.Status.Initialization.ControlPlaneInitialized = new(!tc.stopped)
		if err := (&Reconciler{Client: c, Live: c}).reconcilePools(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		there, err := objects.Get(t.Context(), c, client.ObjectKeyFromObject(old), &clusterv1.MachineDeployment{})
		if err != nil || there != tc.stays {
			t.Errorf("%s: the pool is there: %t (%v)", name, there, err)
		}
		if says := len(s.partial) > 0 && strings.Contains(s.partial[0].Message, tc.says); says != (tc.says != "") {
			t.Errorf("%s: got %+v", name, s.partial)
		}
	}
}
