package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// maxBytes is the bound of a whole timeline.
const maxBytes = 512 << 10

var clusterKey = client.ObjectKey{Namespace: "ns", Name: "c"}

// fullRecord has the cluster and machines with their phases, within the bound of the whole.
func fullRecord(machines int) (*timelines.Record, *provisioningv1.Cluster) {
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c",
		CreationTimestamp: metav1.NewTime(noon)}}
	record := &timelines.Record{Observed: metav1.NewTime(noon)}
	record.Subject(record.Index(), timelines.KindCluster, cluster).SetPhase(timelines.Phase{Name: "Ready", Outcome: timelines.OutcomeReady},
		noon)
	for i := range machines {
		machine := newMachine(fmt.Sprintf("machine-%d", i))
		machine.UID = types.UID(fmt.Sprintf("87b1c9b2-5d5c-4d5c-9d5c-%012d", i))
		s := record.Subject(record.Index(), timelines.KindMachine, machine)
		for j := range 20 {
			phase := timelines.Phase{Name: fmt.Sprintf("Phase%d", j), Message: strings.Repeat("x", 100), Outcome: timelines.OutcomeRunning}
			s.SetPhase(phase, noon.Add(time.Duration(j)*time.Minute))
		}
	}
	return record, cluster
}

// world is an API server that counts the bytes that are written to each part.
func world(t *testing.T, objects ...client.Object) (c client.Client, written map[string]int) {
	t.Helper()
	scheme := fakeclient.Scheme(t, corev1.AddToScheme)
	written = map[string]int{}
	count := func(obj client.Object) {
		if part, is := obj.(*corev1.ConfigMap); is {
			written[part.Name] += len(part.Data[timelines.DataKey])
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			count(obj)
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			err := c.Update(ctx, obj, opts...)
			if err == nil {
				count(obj)
			}
			return err
		},
	}).Build(), written
}

// TestChangeWritesOnePart: in a cluster whose timeline is as large as it may be, a change of one machine writes one part of it.
func TestChangeWritesOnePart(t *testing.T) {
	record, cluster := fullRecord(100)
	c, written := world(t)
	r, s := &Reconciler{Client: c, Live: c}, &scope{provisioning: cluster}
	m := &clusterState{record: record}
	write := func() map[string]int {
		t.Helper()
		clear(written)
		if err := r.write(t.Context(), clusterKey, s, m); err != nil {
			t.Fatal(err)
		}
		return written
	}
	if got := write(); len(got) != 13 {
		t.Fatalf("101 subjects are written to %d parts", len(got))
	}
	if m.size < maxBytes/2 {
		t.Fatalf("the timeline has %d bytes", m.size)
	}
	record.Subjects[50].SetPhase(timelines.Phase{Name: "ApplyingPlan", Outcome: timelines.OutcomeRunning}, noon.Add(time.Hour))
	if got := write(); len(got) != 1 || got["c-timeline-6"] == 0 || got["c-timeline-6"] > maxBytes/10 {
		t.Errorf("a change of one machine of a timeline with %d bytes writes %v", m.size, got)
	}
	record.Observed = metav1.NewTime(noon.Add(2 * time.Hour))
	if got := write(); len(got) != 1 || got["c-timeline"] == 0 {
		t.Errorf("an Event alone writes %v", got)
	}

	again, digests, err := r.read(t.Context(), clusterKey, noon)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(record, again, cmpopts.IgnoreUnexported(timelines.Subject{}), cmpopts.EquateApproxTime(0)); diff != "" {
		t.Errorf("what is read differs from what was written:\n%s", diff)
	}
	if diff := cmp.Diff(m.written, digests); diff != "" {
		t.Errorf("after a restart all is written again:\n%s", diff)
	}

	if err := timelines.Delete(t.Context(), c, c, clusterKey); err != nil {
		t.Fatal(err)
	}
	var left corev1.ConfigMapList
	if err := c.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
		t.Errorf("%d parts are left (%v)", len(left.Items), err)
	}
}

// TestForeignParts: a ConfigMap that somebody else wrote in the place of a timeline costs a bounded number of requests.
func TestForeignParts(t *testing.T) {
	for parts, want := range map[int]struct {
		reads   int
		corrupt bool
	}{
		2_000_000_000: {1, true}, -5: {1, true}, 10_000: {101, false},
	} {
		c, _ := world(t)
		foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "c-timeline"},
			Data: map[string]string{timelines.DataKey: fmt.Sprintf(`{"parts":%d}`, parts)}}
		if err := c.Create(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		var reads atomic.Int32
		deletes := 0
		counted := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				reads.Add(1)
				return c.Get(ctx, key, obj, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				deletes++
				return c.Delete(ctx, obj, opts...)
			},
		})
		_, _, err := timelines.Read(t.Context(), counted, clusterKey)
		if got := int(reads.Load()); timelines.IsCorrupt(err) != want.corrupt || got != want.reads {
			t.Errorf("with %d parts: %v after %d reads, want %+v", parts, err, got, want)
		}
		if err := timelines.Delete(t.Context(), counted, counted, clusterKey); err != nil || deletes != want.reads {
			t.Errorf("with %d parts: %v after %d deletions, want %d", parts, err, deletes, want.reads)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); !apierrors.IsNotFound(err) {
			t.Errorf("with %d parts: after the deletion: %v", parts, err)
		}
	}
}

// TestSavedTogether: of a machine that changes each second, the timeline is saved each five seconds, at last with all that has happened. A
// request that fails loses nothing. The more timelines are to be saved, the longer each waits, unless something has failed.
func TestSavedTogether(t *testing.T) {
	_, cluster := fullRecord(0)
	c, written := world(t)
	var failing bool
	r := &Reconciler{Live: c, Client: interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if failing {
				return apierrors.NewTimeoutError("request timed out", 1)
			}
			return c.Update(ctx, obj, opts...)
		},
	})}
	s, m := &scope{provisioning: cluster}, &clusterState{record: &timelines.Record{}, recovered: true}
	var saved []int
	reconcile := func(second int, reason string) (ctrl.Result, error) {
		clear(written)
		at, status := noon.Add(time.Duration(second)*time.Second), metav1.ConditionUnknown
		if reason == "PlanFailed" {
			status = metav1.ConditionFalse
		}
		s.machines = []clusterv1.Machine{*newMachine("m", condition("BootstrapConfigReady", metav1.ConditionTrue, "Ready", noon),
			condition("InfrastructureReady", metav1.ConditionTrue, "Ready", noon), condition("Reconciled", status, reason, at))}
		result, err := r.reconcile(t.Context(), ctrl.Request{NamespacedName: clusterKey}, s, m, at)
		if len(written) > 0 {
			saved = append(saved, second)
		}
		return result, err
	}
	for second := range 12 {
		result, err := reconcile(second, fmt.Sprintf("Step%d", second))
		if err != nil || second == 11 && result.RequeueAfter != 4*time.Second {
			t.Fatalf("second %d: got %v, %v", second, result.RequeueAfter, err)
		}
	}
	failing = true
	if _, err := reconcile(15, "Step11"); err == nil {
		t.Fatal("a request that fails is no error")
	}
	failing = false
	for _, second := range []int{16, 17, 30} {
		if _, err := reconcile(second, "Step11"); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{0, 5, 10, 16}; !slices.Equal(saved, want) {
		t.Errorf("it was saved in the seconds %v, want %v", saved, want)
	}
	stored, _, err := r.read(t.Context(), clusterKey, noon)
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(stored.Subjects[1]); len(got) != 12 || !strings.HasPrefix(got[11], "Step11 12:00:11") {
		t.Errorf("got phases\n%s", strings.Join(got, "\n"))
	}
	for i := range 20 {
		r.unsaved.Set(client.ObjectKey{Name: fmt.Sprint(i)}, true)
	}
	for second, want := range []struct {
		reason  string
		wait    time.Duration
		unsaved int
	}{{"Step40", 0, 20}, {"Step41", 12 * time.Second, 21}, {"PlanFailed", 3 * time.Second, 21}, {"Step43", 2 * time.Second, 21}} {
		result, err := reconcile(40+second, want.reason)
		if unsaved := r.unsaved.Others(client.ObjectKey{}); err != nil || result.RequeueAfter != want.wait || unsaved != want.unsaved {
			t.Errorf("beside twenty others: got %v, %v, %d to be saved, want %+v", result.RequeueAfter, err, unsaved, want)
		}
	}
}

// TestReadEarlierFormat: earlier hubs wrote one ConfigMap. It is read, and the next change distributes it to parts.
func TestReadEarlierFormat(t *testing.T) {
	record, cluster := fullRecord(20)
	raw, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	earlier := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c-timeline"},
		Data: map[string]string{timelines.DataKey: string(raw)}}
	c, written := world(t, earlier)
	r := &Reconciler{Client: c, Live: c}
	got, digests, err := r.read(t.Context(), clusterKey, noon)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(record, got, cmpopts.IgnoreUnexported(timelines.Subject{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	m := &clusterState{record: got, written: digests}
	if err := r.write(t.Context(), clusterKey, &scope{provisioning: cluster}, m); err != nil {
		t.Fatal(err)
	}
	if len(written) != 3 {
		t.Errorf("21 subjects are written to %v", written)
	}
	collector := timelines.NewCollector(clusterKey)
	if err := collector.Read(t.Context(), c); err != nil || len(collector.Record().Subjects) != 21 {
		t.Errorf("%d subjects are read (%v)", len(collector.Record().Subjects), err)
	}
}

// TestReadUnreadable: a timeline that cannot be decoded is replaced, and one that cannot be read is not.
func TestReadUnreadable(t *testing.T) {
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c-timeline"},
		Data: map[string]string{timelines.DataKey: "{"}}
	c, _ := world(t, broken)
	r := &Reconciler{Client: c, Live: c}
	if record, _, err := r.read(t.Context(), clusterKey, noon); err != nil || len(record.Subjects) > 0 {
		t.Errorf("got %+v, %v", record, err)
	}
	r.Live = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewTooManyRequests("busy", 1)
		},
	})
	if record, _, err := r.read(t.Context(), clusterKey, noon); err == nil {
		t.Errorf("got %+v", record)
	}
}

// TestSaveInterval: the timeline of a large cluster is written less often, since machines that change together are in all of its parts.
func TestSaveInterval(t *testing.T) {
	for _, tc := range []struct {
		changed          recorded
		machines, others int
		want             time.Duration
	}{
		{progress, 10, 0, 5 * time.Second},
		{progress, 10, 20, 13 * time.Second},
		{progress, 1000, 0, 25 * time.Second},
		{progress, 1000, 20, 33 * time.Second},
		{progress, 10_000, 0, time.Minute},
		{outcome, 10_000, 20, 5 * time.Second},
	} {
		if got := tc.changed.saveInterval(tc.machines, tc.others); got != tc.want {
			t.Errorf("%d machines beside %d other timelines: %s between two writes, want %s", tc.machines, tc.others, got, tc.want)
		}
	}
}
