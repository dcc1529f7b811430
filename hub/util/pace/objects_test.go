package pace

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

func replicas(n int32) *int32 { return &n }

// TestLook: what Cluster API's objects are to pacing, once they are reconciled as they are wanted.
func TestLook(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "fleet", Name: "o", Generation: 3}
	steady := []metav1.Condition{{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse}}
	cluster := &clusterv1.Cluster{ObjectMeta: meta, Status: clusterv1.ClusterStatus{ObservedGeneration: 3, Conditions: steady,
		Initialization: clusterv1.ClusterInitializationStatus{ControlPlaneInitialized: ptr.To(true)},
		Workers:        &clusterv1.WorkersStatus{DesiredReplicas: replicas(7), Replicas: replicas(5)},
		ControlPlane:   &clusterv1.ClusterControlPlaneStatus{Replicas: replicas(3)}}}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: meta, Spec: clusterv1.MachineDeploymentSpec{Replicas: replicas(4)},
		Status: clusterv1.MachineDeploymentStatus{ObservedGeneration: 3, Conditions: steady}}
	set := &clusterv1.MachineSet{ObjectMeta: meta, Spec: clusterv1.MachineSetSpec{Replicas: replicas(4)},
		Status: clusterv1.MachineSetStatus{ObservedGeneration: 3, Conditions: steady, Replicas: replicas(6)}}
	machine := &clusterv1.Machine{ObjectMeta: meta, Status: clusterv1.MachineStatus{ObservedGeneration: 3, Conditions: steady}}
	for name, tc := range map[string]struct {
		look   func(client.Reader) Look
		object client.Object
		want   Object
	}{
		"Cluster":           {Clusters, cluster, Object{Machines: 10, Steady: true}},
		"MachineDeployment": {MachineDeployments, deployment, Object{Machines: 4, Steady: true}},
		"MachineSet":        {MachineSets, set, Object{Machines: 6, Steady: true}},
		"Machine":           {Machines, machine, Object{Machines: 1, Steady: true}},
	} {
		scheme := fakeclient.Scheme(t, clusterv1.AddToScheme)
		look := tc.look(fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.object).Build())
		tc.want.Metadata = Metadata(tc.object)
		if got, ok := look(client.ObjectKeyFromObject(tc.object)); got != tc.want || !ok {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
		if got, ok := look(client.ObjectKey{Namespace: "fleet", Name: "gone"}); got != (Object{}) || ok {
			t.Errorf("a %s that is gone: %+v, %t", name, got, ok)
		}
	}
}

// TestSteady: an event that may be about something else than machines is never held back.
func TestSteady(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Cluster){
		"changed":  func(c *clusterv1.Cluster) { c.Generation = 4 },
		"paused":   func(c *clusterv1.Cluster) { c.Status.Conditions[0].Status = metav1.ConditionTrue },
		"new":      func(c *clusterv1.Cluster) { c.Status.Conditions = nil },
		"deleted":  func(c *clusterv1.Cluster) { c.DeletionTimestamp, c.Finalizers = new(metav1.Now()), []string{"x/y"} },
		"starting": func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = nil },
	} {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "o", Generation: 3}}
		c.Status.Conditions = []metav1.Condition{{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse}}
		c.Status.ObservedGeneration, c.Status.Initialization.ControlPlaneInitialized = 3, ptr.To(true)
		change(c)
		look := Clusters(fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(c).Build())
		if got, ok := look(client.ObjectKeyFromObject(c)); got.Steady || !ok {
			t.Errorf("a Cluster that is %s: %+v, %t", name, got, ok)
		}
	}
}

// TestServers: the Machine of a server is not steady before it has a Node.
func TestServers(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		node   string
		want   bool
	}{
		"worker": {nil, "", true}, "server": {map[string]string{clusterv1.MachineControlPlaneLabel: ""}, "", false},
		"server with a Node": {map[string]string{clusterv1.MachineControlPlaneLabel: ""}, "n", true},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m", Labels: tc.labels}}
		m.Status.Conditions = []metav1.Condition{{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse}}
		m.Status.NodeRef.Name = tc.node
		look := Machines(fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(m).Build())
		if got, _ := look(client.ObjectKeyFromObject(m)); got.Steady != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestMetadata(t *testing.T) {
	m := &clusterv1.Machine{}
	m.Labels, m.Annotations = map[string]string{"a": "1", "b": "2"}, map[string]string{"c": "3"}
	kind := clusterv1.GroupVersion.WithKind("MachineSet")
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&clusterv1.MachineSet{}, kind)}
	first := Metadata(m)
	if m.Status.NodeRef.Name, m.ResourceVersion = "n", "7"; Metadata(m.DeepCopy()) != first {
		t.Error("a status changes it")
	}
	for name, change := range map[string]func(*clusterv1.Machine){
		"label":      func(m *clusterv1.Machine) { m.Labels["a"] = "2" },
		"annotation": func(m *clusterv1.Machine) { m.Annotations["d"] = "" },
		"owner":      func(m *clusterv1.Machine) { m.OwnerReferences = []metav1.OwnerReference{{UID: "u"}} },
		"controller": func(m *clusterv1.Machine) { m.OwnerReferences[0].Controller = nil },
	} {
		changed := m.DeepCopy()
		if change(changed); Metadata(changed) == first {
			t.Errorf("another %s does not change it", name)
		}
	}
}
