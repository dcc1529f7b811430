package capi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// changingConnection is a cluster that is connected unless it has an error.
type changingConnection struct {
	clustercache.ClusterCache
	remote client.Client
	err    error
}

func (c *changingConnection) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return c.remote, c.err
}

func (*changingConnection) GetClusterSource(
	string, func(context.Context, client.Object) []ctrl.Request, ...clustercache.GetClusterSourceOption,
) source.Source {
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[ctrl.Request]) error { return nil })
}

// TestSettledClusters: health checks do not look at a cluster in the first minutes of each connection to it.
func TestSettledClusters(t *testing.T) {
	connection := &changingConnection{remote: stuck{}, err: clustercache.ErrClusterNotConnected}
	hub := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).Build()
	settled, key := newSettledClusters(connection, hub), client.ObjectKey{Namespace: "fleet", Name: "one"}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	settled.now = func() time.Time { return now }
	checks := quietNodes{settled}
	for _, step := range []struct {
		name    string
		after   time.Duration
		deleted bool
		err     error
		looks   bool
	}{
		{name: "not connected", err: clustercache.ErrClusterNotConnected},
		{name: "just connected", after: time.Hour},
		{name: "connected for a while", after: settleTime - time.Second},
		{name: "settled", after: time.Second, looks: true},
		{name: "still settled", after: time.Hour, looks: true},
		{name: "connection lost", err: clustercache.ErrClusterNotConnected},
		{name: "connected again", after: time.Minute},
		{name: "settled again", after: settleTime, looks: true},
		{name: "another cluster of the name", deleted: true},
		{name: "settled, too", after: settleTime, looks: true},
	} {
		if now, connection.err = now.Add(step.after), step.err; step.deleted {
			settled.forget(key)
		}
		remote, err := checks.GetClient(t.Context(), key)
		if looks := err == nil && remote == connection.remote; looks != step.looks {
			t.Errorf("%s: health checks look at the cluster: %t (%v)", step.name, looks, err)
		}
		if err != nil && !errors.Is(err, clustercache.ErrClusterNotConnected) {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

// TestSettledSource: when a cluster has settled, its health checks are reconciled at once, however often they have failed before.
func TestSettledSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).Build()
		settled, key := newSettledClusters(&changingConnection{remote: stuck{}}, hub), client.ObjectKey{Namespace: "fleet", Name: "one"}
		queue := priorityqueue.New("test", func(o *priorityqueue.Opts[ctrl.Request]) {
			o.RateLimiter = workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]()
		})
		defer queue.ShutDown()
		check := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "fleet", Name: "one-workers"}}
		begin := quietNodes{settled}.GetClusterSource("test", func(_ context.Context, cluster client.Object) []ctrl.Request {
			if client.ObjectKeyFromObject(cluster) != key {
				t.Errorf("the health checks of %s are asked for", client.ObjectKeyFromObject(cluster))
			}
			return []ctrl.Request{check}
		}).Start
		if err := begin(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		if _, err := settled.GetClient(t.Context(), key); !errors.Is(err, clustercache.ErrClusterNotConnected) {
			t.Fatalf("just connected: %v", err)
		}
		queue.AddWithOpts(priorityqueue.AddOpts{After: 1000 * time.Second}, check) // after many failures
		connected := time.Now()
		got, _ := queue.Get()
		if waited := time.Since(connected); got != check || waited != settleTime {
			t.Errorf("%v after %s, want %s", got, waited, settleTime)
		}
		if _, err := settled.GetClient(t.Context(), key); err != nil {
			t.Errorf("settled: %v", err)
		}
	})
}

// unhealthy is a Machine of a MachineSet that waits for its replacement.
func unhealthy(cluster, name string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name,
		Labels:          map[string]string{clusterv1.ClusterNameLabel: cluster},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineSet", Name: "s", Controller: new(true)}}}}
	conditions.Set(m, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineHealthCheckUnhealthyNodeReason})
	conditions.Set(m, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineSetMachineRemediationDeferredReason})
	return m
}

// TestUnhealthyBefore: while health checks do not look at a cluster, no machine of it waits for its replacement.
func TestUnhealthyBefore(t *testing.T) {
	custom, deleted := unhealthy("one", "custom"), unhealthy("one", "deleted")
	custom.OwnerReferences, deleted.Finalizers, deleted.DeletionTimestamp = nil, []string{"test/hold"}, &metav1.Time{Time: time.Now()}
	hub := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithStatusSubresource(&clusterv1.Machine{}).
		WithObjects(unhealthy("one", "a"), unhealthy("two", "other"), custom, deleted).Build()
	connection := &changingConnection{remote: stuck{}}
	settled := newSettledClusters(connection, hub)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	settled.now = func() time.Time { return now }
	a := &clusterv1.Machine{}
	for _, step := range []struct {
		name  string
		after time.Duration
		err   error
		waits bool // a waits for its replacement afterwards, as before
	}{
		{name: "just connected"},
		{name: "settled", after: settleTime, waits: true},
		{name: "connection lost", err: clustercache.ErrClusterNotConnected},
	} {
		if err := hub.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "a"}, a); err != nil {
			t.Fatal(err)
		}
		a.Status.Conditions = unhealthy("one", "a").Status.Conditions
		if err := hub.Status().Update(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		now, connection.err = now.Add(step.after), step.err
		_, err := settled.GetClient(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "one"})
		if err != nil && (step.waits || !errors.Is(err, clustercache.ErrClusterNotConnected)) {
			t.Errorf("%s: %v", step.name, err)
		}
		var list clusterv1.MachineList
		if err := hub.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range list.Items {
			if conditions.IsFalse(&list.Items[i], clusterv1.MachineOwnerRemediatedCondition) {
				got = append(got, list.Items[i].Name)
			}
		}
		slices.Sort(got)
		want := []string{"custom", "deleted", "other"}
		if step.waits {
			want = slices.Insert(want, 0, "a")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: machines that wait for their replacement: -want +got:\n%s", step.name, diff)
		}
	}
}

// TestStartingMachines: the time of a machine for its Node begins when the hub began to follow the cluster, unless the machine is younger.
func TestStartingMachines(t *testing.T) {
	begun := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	machine := func(cluster, name string, created time.Duration, node string) *clusterv1.Machine {
		m := unhealthy(cluster, name)
		m.CreationTimestamp, m.Spec.ClusterName = metav1.NewTime(begun.Add(created)), cluster
		m.Status = clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node}}
		return m
	}
	hub := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(
		machine("one", "joined", -time.Hour, "n"), machine("one", "starting", -time.Hour, ""), machine("one", "young", 2*time.Hour, ""),
		machine("two", "first", -time.Hour, "")).Build()
	connection := &changingConnection{remote: stuck{}}
	settled := newSettledClusters(connection, hub)
	now := begun
	settled.now = func() time.Time { return now }
	checks := startingMachines{hub, settled}
	for _, step := range []struct {
		name  string
		after time.Duration
		err   error
		asks  bool // for the client of the cluster one; the cluster two was not started
		want  map[string]time.Duration
	}{
		{name: "nothing connected",
			want: map[string]time.Duration{"joined": -time.Hour, "starting": 0, "young": 2 * time.Hour, "first": 0}},
		{name: "connected", after: time.Hour, asks: true,
			want: map[string]time.Duration{"joined": -time.Hour, "starting": time.Hour, "young": 2 * time.Hour, "first": 0}},
		{name: "still connected", after: time.Hour, asks: true,
			want: map[string]time.Duration{"joined": -time.Hour, "starting": time.Hour, "young": 2 * time.Hour, "first": 0}},
		{name: "connection lost", after: time.Hour, err: clustercache.ErrClusterNotConnected, asks: true},
		{name: "connected again", after: time.Hour, asks: true,
			want: map[string]time.Duration{"joined": -time.Hour, "starting": 4 * time.Hour, "young": 4 * time.Hour, "first": 0}},
	} {
		if now, connection.err = now.Add(step.after), step.err; step.asks {
			_, _ = settled.GetClient(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "one"}) // waits, or is not connected
		}
		if step.want == nil {
			continue
		}
		var list clusterv1.MachineList
		if err := checks.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		got := map[string]time.Duration{}
		for _, m := range list.Items {
			got[m.Name] = m.CreationTimestamp.Sub(begun)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: the times of creation -want +got:\n%s", step.name, diff)
		}
	}
}
