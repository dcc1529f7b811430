package server

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	k8sfake "k8s.io/client-go/kubernetes/fake"

	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// objectNames are where the snapshots of all ETCDSnapshotFiles are, and their names, with their locations.
func objectNames(t *testing.T, f snapshotFiles) map[string]string {
	t.Helper()
	list, err := f.objects.Resource(snapshotFileResource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range list.Items {
		var object snapshot.Object
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &object); err != nil {
			t.Fatal(err)
		}
		out[object.Labels[snapshot.NodeLabel]+" "+object.Spec.SnapshotName] = object.Spec.Location
	}
	return out
}

func TestObjectsFollowFiles(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	etcdNode := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/etcd": "true"}}}
	}
	core := k8sfake.NewClientset(etcdNode("n1"), etcdNode("n2"))
	objects := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{snapshotFileResource: "ETCDSnapshotFileList"})
	of := func(node string) snapshotFiles {
		return snapshotFiles{objects: objects, core: core, node: node, hasNode: true, now: func() time.Time { return now }}
	}
	file := func(name string) snapshot.File {
		return snapshot.File{Name: name, Path: "/s/" + name, Size: 5, Created: now, Metadata: map[string]string{"a": "b"}}
	}
	sync := func(f snapshotFiles, files ...snapshot.File) {
		t.Helper()
		if err := f.sync(context.Background(), inventory{files: files}); err != nil {
			t.Fatal(err)
		}
	}
	sync(of("n1"), file("a"), file("b"))
	sync(of("n2"), file("a"))
	failed := snapshot.File{Name: "c", Created: now, Fault: "disk full"}
	sync(of("n1"), file("b"), failed)
	want := map[string]string{"n1 b": "file:///s/b", "n1 c": "", "n2 a": "file:///s/a"}
	if diff := cmp.Diff(want, objectNames(t, of("n1"))); diff != "" {
		t.Error(diff)
	}
	// After a restart nobody remembers the failed one, whose object stays for a day.
	sync(of("n1"), file("b"))
	if diff := cmp.Diff(want, objectNames(t, of("n1"))); diff != "" {
		t.Error(diff)
	}
	now = now.Add(25 * time.Hour)
	if err := core.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sync(of("n1"), file("b"))
	if got := slices.Collect(maps.Keys(objectNames(t, of("n1")))); !slices.Equal(got, []string{"n1 b"}) {
		t.Errorf("after a day, and without n2: %v", got)
	}
	alone := of("n3") // a server without an agent
	alone.hasNode = false
	sync(alone, file("z"))
	sync(alone)
	if got := objectNames(t, of("n1")); len(got) != 1 {
		t.Errorf("a server without an agent left %v", got)
	}
	n, err := core.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil || n.Annotations[snapshotsSynced] != "2023-11-15T23:13:20Z" {
		t.Errorf("%v, %v", n.Annotations, err)
	}
}

func TestObjectsFollowTheBucket(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	core := k8sfake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	objects := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{snapshotFileResource: "ETCDSnapshotFileList"})
	f := snapshotFiles{objects: objects, core: core, node: "n1", hasNode: true, now: func() time.Time { return now }}
	copied := func(name, node string) snapshot.File {
		return snapshot.File{Name: name, Location: "s3://b/" + name, Node: node, Created: now, S3: &snapshot.ObjectS3{Bucket: "b"}}
	}
	local := snapshot.File{Name: "a", Path: "/s/a", Created: now}
	refused := snapshot.File{Name: "d", Created: now, S3: &snapshot.ObjectS3{Bucket: "b"}, Fault: "access denied"}
	all := map[string]string{"n1 a": "file:///s/a", "s3 a": "s3://b/a", "s3 b": "s3://b/b", "s3 d": ""}
	for _, step := range []struct {
		name string
		inv  inventory
		want map[string]string
	}{
		{"a copy of each node, and one that failed",
			inventory{files: []snapshot.File{local, copied("a", "n1"), copied("b", "n2"), refused}, bucket: true}, all},
		{"the bucket was not listed", inventory{files: []snapshot.File{local}}, all},
		{"deleted by somebody else just now", inventory{files: []snapshot.File{local, copied("a", "n1")}, bucket: true}, all},
		{"deleted by this server", inventory{files: []snapshot.File{local, copied("a", "n1")}, bucket: true, deleted: []string{"b", "d"}},
			map[string]string{"n1 a": "file:///s/a", "s3 a": "s3://b/a"}},
	} {
		if err := f.sync(t.Context(), step.inv); err != nil {
			t.Fatal(err)
		}
		got := objectNames(t, f)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
		age(t, f, now)
	}
	now = now.Add(2 * time.Minute)
	if err := f.sync(t.Context(), inventory{bucket: true}); err != nil || len(objectNames(t, f)) > 0 {
		t.Errorf("an empty bucket after a minute: %v, %v", objectNames(t, f), err)
	}
	n, err := core.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil || n.Annotations[bucketSynced] != "2023-11-14T22:15:20Z" {
		t.Errorf("%v, %v", n.Annotations, err)
	}
}

// age gives objects the creation time that an API server would have given them.
func age(t *testing.T, f snapshotFiles, now time.Time) {
	t.Helper()
	client := f.objects.Resource(snapshotFileResource)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		o.SetCreationTimestamp(metav1.NewTime(now))
		if _, err := client.Update(t.Context(), &o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
