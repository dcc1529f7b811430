package etcdsnapshot

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// TestForgetsDeleted: an ETCDSnapshot is written once, and nothing is kept of one that is deleted: a cluster that runs for years has had
// thousands of them.
func TestForgetsDeleted(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)
	c, requests := fakeclient.CountApplies(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&rkev1.ETCDSnapshot{}).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, func(client.Object) []string { return nil }).Build())
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	r := &Reconciler{Client: c, Now: func() time.Time { return now }, applied: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "c"}}
	item := snapshotFile("s3-a", "2026-11-01T00:00:00Z")
	_ = unstructured.SetNestedMap(item.Object, map[string]any{"bucket": "backups"}, "spec", "s3")
	files, _ := parse([]unstructured.Unstructured{item})
	follow := func(what string, files []file, want int) {
		t.Helper()
		*requests = 0
		if _, err := r.follow(t.Context(), cluster, files); err != nil || *requests != want {
			t.Errorf("%s: %d requests, want %d (%v)", what, *requests, want, err)
		}
	}
	snapshot := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c-s3-a"}}
	// Another object that is applied for the snapshot is applied again once nothing is kept for the snapshot.
	applyOther := func(what string, want int) {
		t.Helper()
		*requests = 0
		other := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "other"}}
		if err := r.applied.Apply(t.Context(), client.ObjectKeyFromObject(snapshot), other); err != nil || *requests != want {
			t.Errorf("%s: another object: %d requests, want %d (%v)", what, *requests, want, err)
		}
	}
	follow("a new snapshot", files, 1)
	follow("the same", files, 0)
	applyOther("for the snapshot", 1)
	applyOther("for the snapshot again", 0)
	if !r.forgetDeleted().Delete(event.DeleteEvent{Object: snapshot}) {
		t.Error("the event is dropped")
	}
	follow("after a deletion by somebody else", files, 1)
	applyOther("after a deletion by somebody else", 1)

	follow("not listed any more", nil, 0)
	applyOther("not listed any more", 0)
	now = now.Add(removedAfter)
	follow("missing for long", nil, 0)
	applyOther("deleted", 1)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("reading the deleted snapshot: %v", err)
	}
}

// TestTokenHash: an ETCDSnapshot keeps what the cluster has said of the token, also where a restored cluster lists the file without it.
func TestTokenHash(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&rkev1.ETCDSnapshot{}).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, func(client.Object) []string { return nil }).Build()
	r := &Reconciler{Client: c, Now: time.Now, applied: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "c"}}
	for _, tc := range []struct{ runtime, listed, want string }{
		{"k3s", "", ""}, {"k3s", "$(reboot)", ""}, {"k3s", "2cf24dba5fb0", "2cf24dba5fb0"}, {"k3s", "", "2cf24dba5fb0"},
		{"rke2", "0123456789ab", "0123456789ab"},
	} {
		item := snapshotFile("s3-a", "2026-11-01T00:00:00Z")
		_ = unstructured.SetNestedMap(item.Object, map[string]any{"bucket": "backups"}, "spec", "s3")
		item.SetAnnotations(map[string]string{"etcd." + tc.runtime + ".cattle.io/snapshot-token-hash": tc.listed})
		files, _ := parse([]unstructured.Unstructured{item})
		if _, err := r.follow(t.Context(), cluster, files); err != nil {
			t.Fatal(err)
		}
		snapshot := &rkev1.ETCDSnapshot{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c-s3-a"}, snapshot); err != nil {
			t.Fatal(err)
		}
		if got := snapshot.Annotations[rkev1.SnapshotTokenHashAnnotation]; got != tc.want {
			t.Errorf("%+v: got %q", tc, got)
		}
	}
}

// TestNodeIsBack: an ETCDSnapshot is not deleted as soon as the Node that has its file is there again, since it lists the file a little
// later.
func TestNodeIsBack(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme, corev1.AddToScheme)
	missed := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	now := missed.Add(24 * time.Hour)
	silent := nodeOf(missed.Add(-time.Hour))
	silent.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	readyFor := func(d time.Duration) *corev1.Node {
		node := nodeOf(missed.Add(-time.Hour))
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now.Add(-d))}}
		return node
	}
	for name, tt := range map[string]struct {
		node *corev1.Node
		left time.Duration
	}{
		"gone":                          {nil, lostAfter - 24*time.Hour},
		"stopped":                       {silent, lostAfter - 24*time.Hour},
		"there all the time":            {nodeOf(missed.Add(-time.Hour)), 0},
		"back for a minute":             {nodeOf(now.Add(-time.Minute)), removedAfter - time.Minute},
		"back for as long as is waited": {nodeOf(now.Add(-removedAfter)), 0},
		"started a minute ago":          {readyFor(time.Minute), removedAfter - time.Minute},
		"ready all the time":            {readyFor(25 * time.Hour), 0},
	} {
		since := metav1.NewTime(missed)
		snapshot := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c-a"},
			SnapshotFile: rkev1.ETCDSnapshotFile{NodeName: "n"}, Status: rkev1.ETCDSnapshotStatus{Missing: true, MissingSince: &since}}
		key := client.ObjectKey{Namespace: "fleet", Name: "c"}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(snapshot).Build()
		remote := fake.NewClientBuilder().WithScheme(scheme)
		if tt.node != nil {
			remote.WithObjects(tt.node)
		}
		r := &Reconciler{Client: c, ClusterCache: clustercache.NewFakeClusterCache(remote.Build(), key), Now: func() time.Time { return now },
			applied: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
		left, err := r.miss(t.Context(), snapshot, &nodes{r: r, cluster: key})
		deleted := apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(snapshot), snapshot))
		if err != nil || left != tt.left || deleted != (left == 0) {
			t.Errorf("%s: %s are left, want %s; deleted: %t, %v", name, left, tt.left, deleted, err)
		}
	}
}

func nodeOf(created time.Time) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(created)}}
}

// staleReader is a cache that has not seen a write yet: it has an ETCDSnapshot as it was before.
type staleReader struct {
	client.Client
	before *rkev1.ETCDSnapshot
}

func (s *staleReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if snapshot, is := obj.(*rkev1.ETCDSnapshot); is && s.before != nil {
		s.before.DeepCopyInto(snapshot)
		return nil
	}
	return s.Client.Get(ctx, key, obj, opts...)
}

// TestListedAgainAtOnce: RKE2 and k3s list the files of a folder again a second after they have listed none. An ETCDSnapshot of which the
// cache does not have yet that it is missing is looked at again when it has.
func TestListedAgainAtOnce(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)
	c := &staleReader{Client: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&rkev1.ETCDSnapshot{}).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, func(client.Object) []string { return nil }).Build()}
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	r := &Reconciler{Client: c, Now: func() time.Time { return now }, applied: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "c"}}
	item := snapshotFile("s3-a", "2026-11-01T00:00:00Z")
	_ = unstructured.SetNestedMap(item.Object, map[string]any{"bucket": "backups"}, "spec", "s3")
	listed, _ := parse([]unstructured.Unstructured{item})
	follow := func(files []file) *rkev1.ETCDSnapshot {
		t.Helper()
		if _, err := r.follow(t.Context(), cluster, files); err != nil {
			t.Fatal(err)
		}
		snapshot := &rkev1.ETCDSnapshot{}
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c-s3-a"}, snapshot); err != nil {
			t.Fatal(err)
		}
		return snapshot
	}
	there := follow(listed)
	missing := follow(nil)
	if there.Status.Missing || !missing.Status.Missing {
		t.Fatalf("the status is %+v, and %+v without the file", there.Status, missing.Status)
	}
	c.before = there
	if stale := follow(listed); !stale.Status.Missing {
		t.Fatalf("with a cache that is behind, the status is %+v", stale.Status)
	}
	if c.before = nil; !changedByOthers.Update(event.UpdateEvent{ObjectOld: there, ObjectNew: missing}) {
		t.Error("that the snapshot is missing is no event")
	}
	if got := follow(listed); got.Status.Missing || got.Status.MissingSince != nil {
		t.Errorf("the status stays %+v", got.Status)
	}
}
