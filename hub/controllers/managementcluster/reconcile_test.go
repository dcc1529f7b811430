package managementcluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
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
	r.history.start(r.Clock.Now())
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
