package preterminatehook

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// oneConnection is a connection to a cluster beside which no other can be made.
type oneConnection struct {
	clustercache.ClusterCache
}

func (oneConnection) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, errors.New("no other connection")
}

// leavingMember is a cluster with two members of etcd, of which "a" was asked to leave, and counts the lists that are read past the cache.
func leavingMember(t *testing.T, now func() time.Time) (r *Reconciler, lists *int) {
	t.Helper()
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "cluster"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
		Name: "c"}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	controlPlane.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}
	controlPlane.Spec.KubernetesVersion = "v1.36.3+k3s1"
	machine := func(name string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c", rkev1.EtcdRoleLabel: "true",
				rkev1.ControlPlaneRoleLabel: "true"},
			Annotations: map[string]string{rkev1.RKEBootstrapCleanupPreTerminateHook: rkev1.RKEBootstrapCleanupPreTerminateOwner},
		}}
		m.Spec.ClusterName = "c"
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
			Name: name}
		m.Status.NodeRef.Name = name
		return m
	}
	a := machine("a")
	a.DeletionTimestamp, a.Finalizers = &metav1.Time{Time: now().Add(-time.Hour)}, []string{clusterv1.MachineFinalizer}
	a.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{rollout.EtcdRoleLabel: "true"}, Annotations: map[string]string{"etcd.k3s.cattle.io/remove": "true"},
	}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: rollout.EtcdIsVoter, Status: corev1.ConditionTrue}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.Machine{}).WithObjects(cluster, controlPlane, a,
		machine("b")).Build()
	lists = new(int)
	live := interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		opts ...client.ListOption) error {
		*lists++
		return c.List(ctx, list, opts...)
	}})
	remote := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node).Build()
	connections := clustercache.NewFakeClusterCache(remote, client.ObjectKeyFromObject(cluster), controllerName+"-nodes")
	return &Reconciler{Client: c, Cache: c, Live: live, ClusterCache: oneConnection{connections}, Now: now}, lists
}

// TestReportsAreReadFromTheCache: agents report all the time, and while a member is being removed each report is looked at. What is read
// past the caches for that is read once in an interval, and is not forgotten where no report comes.
func TestReportsAreReadFromTheCache(t *testing.T) {
	at := now
	r, lists := leavingMember(t, func() time.Time { return at })
	report := func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "c"}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	report()
	once := *lists
	if once == 0 {
		t.Fatal("nothing was read past the cache, so that this test proves nothing")
	}
	for at = now.Add(100 * time.Millisecond); at.Before(now.Add(refreshInterval)); at = at.Add(100 * time.Millisecond) {
		if again, due := report().RequeueAfter, now.Add(refreshInterval).Sub(at); again <= 0 || again > due {
			t.Fatalf("the next look is in %s, and is due in %s", again, due)
		}
	}
	if *lists != once {
		t.Errorf("%d lists were read past the cache, want %d as for one report", *lists, once)
	}
	report()
	if *lists != 2*once {
		t.Errorf("after %s %d lists were read past the cache, want %d", refreshInterval, *lists, 2*once)
	}
}

// TestMachineToCluster: a reconcile reads all machines of a cluster, which those without etcd do not cause, unless one with etcd waits for
// its removal.
func TestMachineToCluster(t *testing.T) {
	r, _ := leavingMember(t, func() time.Time { return now })
	labels := map[string]string{clusterv1.ClusterNameLabel: "c"}
	bootstrap := func(name, role string) *rkev1.RKEBootstrap {
		return &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c", role: "true"}}}
	}
	server, worker := bootstrap("server", rkev1.EtcdRoleLabel), bootstrap("worker", rkev1.WorkerRoleLabel)
	for _, b := range []*rkev1.RKEBootstrap{server, worker} {
		if err := r.Client.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	machine := func(bootstrap string, annotations map[string]string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: bootstrap, Labels: labels, Annotations: annotations}}
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
			Name: bootstrap}
		return m
	}
	hook := map[string]string{rkev1.RKEBootstrapCleanupPreTerminateHook: rkev1.RKEBootstrapCleanupPreTerminateOwner}
	labelled := machine("none", nil)
	labelled.Labels = map[string]string{clusterv1.ClusterNameLabel: "c", rkev1.EtcdRoleLabel: "true"}
	mapped := func(o client.Object) bool { return len(r.machineToCluster(t.Context(), o)) == 1 }
	for name, tc := range map[string]struct {
		object client.Object
		want   bool
	}{
		"RKEBootstrap with etcd": {server, true}, "RKEBootstrap without": {worker, false},
		"Machine with the role": {labelled, true}, "Machine whose RKEBootstrap has it": {machine("server", nil), true},
		"Machine with the hook": {machine("worker", hook), true}, "worker": {machine("worker", nil), false},
		"Machine before its RKEBootstrap is known": {machine("none", nil), false},
	} {
		if got := mapped(tc.object); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	r.removing.Store(client.ObjectKey{Namespace: "ns", Name: "c"}, time.Time{})
	if !mapped(machine("worker", nil)) || !mapped(worker) {
		t.Error("while a member is removed, workers are not looked at")
	}
}

// TestMachinesAreReadAgain: a change of a machine without etcd is no event until the cluster is known to wait for a removal, so that the
// Machines are read once more after that.
func TestMachinesAreReadAgain(t *testing.T) {
	r, _ := leavingMember(t, func() time.Time { return now })
	key, lists := client.ObjectKey{Namespace: "ns", Name: "c"}, 0
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*clusterv1.MachineList); ok {
			if _, known := r.removing.Load(key); known {
				lists++
			}
		}
		return c.List(ctx, list, opts...)
	}})
	for want := 1; want <= 2; want++ {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if lists != want {
			t.Errorf("Machines were read %d times while the cluster is known to wait, want %d", lists, want)
		}
	}
}

// TestMovedControlPlaneReleasesNoMember: after a backup of the hub was restored, the RKEControlPlane names the UID that its Cluster had.
// That is no cluster without data.
func TestMovedControlPlaneReleasesNoMember(t *testing.T) {
	r, _ := leavingMember(t, func() time.Time { return now })
	controlPlane := &rkev1.RKEControlPlane{}
	if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"}, controlPlane); err != nil {
		t.Fatal(err)
	}
	controlPlane.OwnerReferences[0].UID = "before"
	if err := r.Client.Update(t.Context(), controlPlane); err != nil {
		t.Fatal(err)
	}
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "c"}})
	if err != nil || result.RequeueAfter != refreshInterval {
		t.Errorf("the next look is in %s (%v)", result.RequeueAfter, err)
	}
	machine := &clusterv1.Machine{}
	if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, machine); err != nil {
		t.Fatal(err)
	}
	if reason := conditions.GetReason(machine, rkev1.EtcdMemberRemovedCondition); !hasHook(machine) ||
		reason != ownership.ReasonOwnerMismatch {
		t.Errorf("%s, annotations %v", reason, machine.Annotations)
	}
}

// TestRefusedRemovalIsShown: a cluster that refuses to be asked for the removal of a member holds up the deletion of the Machine, whose
// condition says so.
func TestRefusedRemovalIsShown(t *testing.T) {
	r, _ := leavingMember(t, func() time.Time { return now })
	cluster := client.ObjectKey{Namespace: "ns", Name: "c"}
	voter := func(name string) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{rollout.EtcdRoleLabel: "true"}}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: rollout.EtcdIsVoter, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(now)}}
		return node
	}
	refused := errors.New("admission webhook nodes.example.com: no endpoints available")
	remote := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(voter("a"), voter("b")).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch,
			...client.PatchOption) error {
			return refused
		}}).Build()
	r.ClusterCache = oneConnection{clustercache.NewFakeClusterCache(remote, cluster, controllerName+"-nodes")}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: cluster}); !errors.Is(err, refused) {
		t.Fatalf("got %v", err)
	}
	machine := &clusterv1.Machine{}
	if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, machine); err != nil {
		t.Fatal(err)
	}
	c := conditions.Get(machine, rkev1.EtcdMemberRemovedCondition)
	if !hasHook(machine) || c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonRemovalFailed ||
		!strings.Contains(c.Message, refused.Error()) {
		t.Errorf("got %+v, annotations %v", c, machine.Annotations)
	}
}

// noNodes is a connection to a cluster that does not list its Nodes.
type noNodes struct {
	clustercache.ClusterCache
}

var errNoNodes = errors.New("failed waiting for *v1.Node Informer to sync")

func (noNodes) GetReader(context.Context, client.ObjectKey) (client.Reader, error) {
	return nil, errNoNodes
}

// TestNodesThatAreNotListed: a machine whose member needs no removal is released although the cluster does not list its Nodes. Any other
// one waits, and its condition says for what.
func TestNodesThatAreNotListed(t *testing.T) {
	key := client.ObjectKey{Namespace: "ns", Name: "c"}
	for reason, change := range map[string]func(client.Client, *clusterv1.Machine) error{
		reasonUnreachable: func(client.Client, *clusterv1.Machine) error { return nil },
		reasonForced: func(c client.Client, machine *clusterv1.Machine) error {
			machine.Annotations[rkev1.EtcdForceRemoveAnnotation] = "true"
			return c.Update(t.Context(), machine)
		},
		reasonClusterDeleted: func(c client.Client, _ *clusterv1.Machine) error {
			cluster := &clusterv1.Cluster{}
			if err := c.Get(t.Context(), key, cluster); err != nil {
				return err
			}
			cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
			return errors.Join(c.Update(t.Context(), cluster), c.Delete(t.Context(), cluster))
		},
	} {
		r, _ := leavingMember(t, func() time.Time { return now })
		r.ClusterCache = noNodes{r.ClusterCache}
		machine := &clusterv1.Machine{}
		if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, machine); err != nil {
			t.Fatal(err)
		}
		if err := change(r.Client, machine); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, errNoNodes) {
			t.Errorf("%s: the error is %v", reason, err)
		}
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
			t.Fatal(err)
		}
		got := conditions.GetReason(machine, rkev1.EtcdMemberRemovedCondition)
		if got != reason || hasHook(machine) != (reason == reasonUnreachable) {
			t.Errorf("%s: the reason is %s, the annotations are %v", reason, got, machine.Annotations)
		}
		says := conditions.GetMessage(machine, rkev1.EtcdMemberRemovedCondition)
		if waits := strings.Contains(says, "to list its Nodes"); waits != (reason == reasonUnreachable) {
			t.Errorf("%s: it says %q", reason, says)
		}
	}
}
