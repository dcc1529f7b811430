package managementcluster

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// present is an agent that is connected.
type present struct{}

func (present) Connected(string) bool     { return true }
func (present) OnChange(func(key string)) {}

// TestWatchBeginsWithConnection: the reconcile that finds the agent connected watches the Nodes, since nothing brings another one.
func TestWatchBeginsWithConnection(t *testing.T) {
	a := newAPI(t)
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-a"}}
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme, provisioningv1.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management).WithStatusSubresource(management).Build()
	r := &Reconciler{Client: c, Clock: clock.RealClock{}, Access: &tunnelaccess.Access{Presence: present{}}}
	r.watchers.start(t.Context(), func(string) *rest.Config { return &rest.Config{Host: a.URL} }, func(string) {})
	s := &scope{management: management, cluster: &provisioningv1.Cluster{}}
	s.cluster.Namespace, s.cluster.Name = "fleet", "imported"
	if err := c.Create(t.Context(), s.cluster); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reconcileConnection(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reconcileNodeCount(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	defer r.watchers.stop(management.Name)
	if !s.connected() || r.watchers.byName[management.Name] == nil {
		t.Errorf("connected: %t, watched: %t", s.connected(), r.watchers.byName[management.Name] != nil)
	}
}

// TestAPIReachable: an imported cluster whose API does not answer says so until it does, and keeps its version.
func TestAPIReachable(t *testing.T) {
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-a"}}
	conditions.Set(management, metav1.Condition{Type: managementv3.ConnectedCondition, Status: metav1.ConditionTrue, Reason: reasonConnected})
	management.Status.Version = &version.Info{GitVersion: "v1.36.3+k3s1"}
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management).WithStatusSubresource(management).Build()
	r := &Reconciler{Client: c}
	one := &nodeWatcher{cancel: func() {}}
	r.watchers.byName = map[string]*nodeWatcher{"c-m-a": one}
	for i, step := range []struct {
		observed observation
		want     string
	}{
		{observation{unreachableSince: time.Unix(0, 0)},
			"The API of the cluster has not answered through the cluster agent since 1970-01-01T00:00:00Z"},
		{observation{}, "The API of the cluster has not answered through the cluster agent since 1970-01-01T00:00:00Z"}, // the hub was restarted
		{observation{reached: true}, ""}, // it has refused to say its version
		{observation{reached: true, version: &version.Info{GitVersion: "v1.36.3+k3s1"}}, ""},
	} {
		one.observed = step.observed
		s := &scope{management: &managementv3.Cluster{}, cluster: &provisioningv1.Cluster{}}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(management), s.management); err != nil {
			t.Fatal(err)
		}
		if _, err := r.reconcileNodeCount(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(management), management); err != nil {
			t.Fatal(err)
		}
		if got := conditions.GetMessage(management, managementv3.APIReachableCondition); got != step.want ||
			conditions.Has(management, managementv3.APIReachableCondition) != (step.want != "") || management.Status.Version == nil {
			t.Errorf("step %d: the status is %+v", i, management.Status)
		}
	}
}

// absent is an agent that is not connected.
type absent struct{}

func (absent) Connected(string) bool     { return false }
func (absent) OnChange(func(key string)) {}

// TestTakeover: a replica that has waited for hours gives the agents of the leader before the time to reconnect when it leads, and not when
// its process begins.
func TestTakeover(t *testing.T) {
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-a"}}
	conditions.Set(management, metav1.Condition{Type: managementv3.ConnectedCondition, Status: metav1.ConditionTrue, Reason: reasonConnected})
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme, provisioningv1.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management).WithStatusSubresource(management).Build()
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	r := &Reconciler{Client: c, Clock: now, Access: &tunnelaccess.Access{Presence: absent{}}}
	if err := r.start(t.Context(), nil); err != nil { // as Warmup of the controller does
		t.Fatal(err)
	}
	for _, step := range []struct {
		after     time.Duration
		connected bool
		requeue   time.Duration
	}{
		{3 * time.Hour, true, startGrace},
		{startGrace - time.Second, true, time.Second},
		{time.Second, false, 0},
	} {
		now.SetTime(now.Now().Add(step.after))
		s := &scope{management: &managementv3.Cluster{}}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(management), s.management); err != nil {
			t.Fatal(err)
		}
		result, err := r.reconcileConnection(t.Context(), s)
		if err != nil || s.connected() != step.connected || result.RequeueAfter != step.requeue {
			t.Errorf("after %s: connected %t, again after %s, %v; want %+v", step.after, s.connected(), result.RequeueAfter, err, step)
		}
	}
}

// TestNameTaken: what is known of a Cluster's agent says nothing of a Cluster API Cluster of its name that was made for something else.
func TestNameTaken(t *testing.T) {
	for name, taken := range map[string]bool{"made for the Cluster": false, "made for something else": true} {
		t.Run(name, func(t *testing.T) {
			management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-a",
				Labels: map[string]string{rkev1.OwnerClusterNamespaceLabel: "fleet", rkev1.OwnerClusterNameLabel: "prod"}}}
			named := metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}
			cluster := &provisioningv1.Cluster{ObjectMeta: named, Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
			cluster.Annotations = map[string]string{rkev1.ManagementClusterNameAnnotation: management.Name}
			capi := &clusterv1.Cluster{ObjectMeta: named, Spec: clusterv1.ClusterSpec{ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane", Name: "prod"}}}
			capi.UID = "capi"
			if !taken {
				capi.OwnerReferences = []metav1.OwnerReference{{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "prod",
					UID: "p"}}
			}
			plane := &rkev1.RKEControlPlane{ObjectMeta: named}
			plane.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "prod",
				UID: capi.UID}}
			scheme := fakeclient.Scheme(t, managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management, cluster, capi, plane).Build()
			s := &scope{management: management}
			if err := (&Reconciler{Client: c}).readOwner(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if s.cluster == nil || (s.controlPlane == nil) != taken {
				t.Errorf("Cluster %t, RKEControlPlane %t", s.cluster != nil, s.controlPlane != nil)
			}
		})
	}
}
