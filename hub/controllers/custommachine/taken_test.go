package custommachine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// machineWithNode returns the objects of a custom machine that names the Node n.
func machineWithNode(name string) (*clusterv1.Machine, *rkev1.CustomMachine) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, UID: types.UID("uid-" + name),
		Finalizers: []string{clusterv1.MachineFinalizer}, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
	machine.Spec.ClusterName = "c"
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "CustomMachine",
		Name: name}
	machine.Status.NodeRef.Name = "n"
	custom := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name,
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}}, Spec: rkev1.CustomMachineSpec{ProviderID: "k3s://n"}}
	custom.Status.Conditions = []metav1.Condition{
		{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason}}
	return machine, custom
}

// TestNodeTaken: a machine that was installed again, and has registered as another Machine with its Node, keeps the Node when the earlier
// Machine is deleted.
func TestNodeTaken(t *testing.T) {
	key := client.ObjectKey{Namespace: "fleet", Name: "c"}
	for name, tc := range map[string]struct {
		// label is that of the Node; there is none if it is empty.
		label string
		etcd  bool
		// hook is what the earlier Machine has before, paused whether it is paused. foreign is whether the new one is of another cluster.
		hook, paused, foreign bool
		// taken is whether the Node counts as that of the other one; stays is whether the earlier Machine waits for Cluster API when it is
		// deleted.
		taken, stays bool
	}{
		"installed again":                    {label: "uid-new", taken: true},
		"installed again, seen before":       {label: "uid-new", hook: true, taken: true},
		"a server with etcd":                 {label: "uid-new", etcd: true, taken: true, stays: true},
		"the new one has no Node yet":        {label: "uid-earlier", stays: true},
		"moved from another hub":             {label: "uid-of-another-hub", stays: true},
		"the new one was deleted meanwhile":  {label: "uid-gone", hook: true, stays: true},
		"its Node was deleted with that one": {hook: true, stays: true},
		"the Machine is paused":              {label: "uid-new", hook: true, paused: true, taken: true, stays: true},
		"a label of another cluster":         {label: "uid-new", foreign: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			machine, custom := machineWithNode("earlier")
			newMachine, newCustom := machineWithNode("new")
			machine.Annotations = map[string]string{}
			if tc.etcd {
				machine.Annotations[rkev1.RKEBootstrapCleanupPreTerminateHook] = rkev1.RKEBootstrapCleanupPreTerminateOwner
			}
			if tc.hook {
				machine.Annotations[rkev1.NodeTakenPreDrainHook] = "n"
			}
			if tc.paused {
				machine.Annotations[clusterv1.PausedAnnotation] = ""
			}
			if tc.foreign {
				newMachine.Labels[clusterv1.ClusterNameLabel], newCustom.Labels[clusterv1.ClusterNameLabel] = "d", "d"
				newMachine.Spec.ClusterName = "d"
			}
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}
			cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
			scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme, corev1.AddToScheme)
			hub := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&rkev1.CustomMachine{}, indexMachineUID, machineUIDs).
				WithObjects(cluster, machine, custom, newMachine, newCustom).WithStatusSubresource(custom).Build()
			remote := fake.NewClientBuilder().WithScheme(scheme)
			if tc.label != "" {
				remote = remote.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
					Labels: map[string]string{rkev1.MachineUIDLabel: tc.label}}, Spec: corev1.NodeSpec{ProviderID: "k3s://n"}})
			}
			r := &Reconciler{Client: hub, Now: time.Now,
				ClusterCache: clustercache.NewFakeClusterCache(remote.Build(), key, controllerName+"-nodes")}
			reconcile := func() {
				t.Helper()
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(custom)}); err != nil {
					t.Fatal(err)
				}
			}
			reconcile()
			for _, object := range []client.Object{machine, custom} {
				if err := hub.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
					t.Fatal(err)
				}
			}
			if _, has := machine.Annotations[rkev1.NodeTakenPreDrainHook]; has != tc.taken {
				t.Errorf("the Machine has %v", machine.Annotations)
			}
			if taken := conditions.GetReason(custom, rkev1.NodeFoundCondition) == "NodeTaken"; taken != tc.taken {
				t.Errorf("NodeFound is %+v", conditions.Get(custom, rkev1.NodeFoundCondition))
			}
			if err := hub.Delete(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			reconcile()
			err := hub.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)
			if stays := !apierrors.IsNotFound(err); stays != tc.stays {
				t.Errorf("the earlier Machine stays: %t, %v", stays, err)
			}
		})
	}
}

// TestNodeTakenDuringDeletion: the Node of a server that was installed again while its earlier Machine was being deleted is not drained for
// that one, whose pre-terminate hook keeps it. It is gone once the hook is.
func TestNodeTakenDuringDeletion(t *testing.T) {
	key := client.ObjectKey{Namespace: "fleet", Name: "c"}
	machine, custom := machineWithNode("earlier")
	newMachine, newCustom := machineWithNode("new")
	machine.Annotations = map[string]string{rkev1.RKEBootstrapCleanupPreTerminateHook: rkev1.RKEBootstrapCleanupPreTerminateOwner}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme, corev1.AddToScheme)
	hub := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&rkev1.CustomMachine{}, indexMachineUID, machineUIDs).
		WithObjects(cluster, machine, custom, newMachine, newCustom).WithStatusSubresource(custom).Build()
	remote := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
		Labels: map[string]string{rkev1.MachineUIDLabel: "uid-new"}}, Spec: corev1.NodeSpec{ProviderID: "k3s://n"}}).Build()
	r := &Reconciler{Client: hub, Now: time.Now, ClusterCache: clustercache.NewFakeClusterCache(remote, key, controllerName+"-nodes")}
	if err := hub.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	reconcile := func() error {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(custom)}); err != nil {
			t.Fatal(err)
		}
		return hub.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)
	}
	if err := reconcile(); err != nil || machine.Annotations[rkev1.NodeTakenPreDrainHook] != "n" {
		t.Fatalf("the Machine that waits for its pre-terminate hook has %v, %v", machine.Annotations, err)
	}
	delete(machine.Annotations, rkev1.RKEBootstrapCleanupPreTerminateHook)
	if err := hub.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	if err := reconcile(); !apierrors.IsNotFound(err) {
		t.Errorf("the Machine stays without its pre-terminate hook: %v", err)
	}
}

// TestNodeToCustomMachines: a Node is mapped to the machine whose label it has, and to the one that names it still.
func TestNodeToCustomMachines(t *testing.T) {
	machine, custom := machineWithNode("earlier")
	newMachine, newCustom := machineWithNode("new")
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)).
		WithIndex(&rkev1.CustomMachine{}, indexMachineUID, machineUIDs).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, index.MachineByNodeName).
		WithObjects(machine, custom, newMachine, newCustom).Build()
	r := &Reconciler{Client: c}
	got := r.nodeToCustomMachines(client.ObjectKey{Namespace: "fleet", Name: "c"})(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{rkev1.MachineUIDLabel: "uid-new"}}})
	names := map[string]bool{}
	for _, request := range got {
		names[request.Name] = true
	}
	if len(got) != 2 || !names["earlier"] || !names["new"] {
		t.Errorf("got %v", got)
	}
}
