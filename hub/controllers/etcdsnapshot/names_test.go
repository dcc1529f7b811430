package etcdsnapshot

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// TestSameName: files whose ETCDSnapshots would have the same name have one each, and no name changes afterwards.
func TestSameName(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)
	c, _ := fakeclient.CountApplies(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&rkev1.ETCDSnapshot{}).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, func(client.Object) []string { return nil }).Build())
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	r := &Reconciler{Client: c, Now: func() time.Time { return now }, applied: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
	follow := func(cluster string, names ...string) {
		t.Helper()
		var items []unstructured.Unstructured
		for _, name := range names {
			item := snapshotFile(name, "2026-11-01T00:00:00Z")
			_ = unstructured.SetNestedMap(item.Object, map[string]any{"bucket": "backups"}, "spec", "s3")
			items = append(items, item)
		}
		files, _ := parse(items)
		of := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: cluster, UID: "uid"}}
		if _, err := r.follow(t.Context(), of, files); err != nil {
			t.Fatal(err)
		}
	}
	snapshots := func() map[string]string { // the file of each, by name
		t.Helper()
		list := &rkev1.ETCDSnapshotList{}
		if err := c.List(t.Context(), list, client.InNamespace("fleet")); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, s := range list.Items {
			out[s.Name] = s.Spec.ClusterName + "/" + s.Annotations[rkev1.SnapshotNameAnnotation]
		}
		return out
	}
	// The ends of both are cut, and in place of them is the same digest: as if it were by chance.
	long := strings.Repeat("x", maxName) + "1"
	cut := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: rkev1.SafeConcat("a", long),
		Labels:      map[string]string{rkev1.ClusterNameLabel: "a"},
		Annotations: map[string]string{rkev1.SnapshotNameAnnotation: strings.Repeat("x", maxName) + "2"}}}
	cut.Spec.ClusterName = "a"
	if err := c.Create(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	follow("a-b", "x")
	follow("a", "b-x", long)
	first := snapshots()
	files := slices.Sorted(maps.Values(first))
	want := []string{"a-b/x", "a/b-x", "a/" + long, "a/" + strings.Repeat("x", maxName) + "2"}
	slices.Sort(want)
	if diff := cmp.Diff(want, files); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
	if first["a-b-x"] != "a-b/x" {
		t.Errorf("the name a-b-x is that of %s", first["a-b-x"])
	}
	for name := range first {
		if len(name) > maxName {
			t.Errorf("%s has %d characters", name, len(name))
		}
	}
	if err := c.Delete(t.Context(), &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a-b-x"}}); err != nil {
		t.Fatal(err)
	}
	follow("a", "b-x", long)
	delete(first, "a-b-x")
	if diff := cmp.Diff(first, snapshots()); diff != "" {
		t.Errorf("names after the first was deleted (-want +got):\n%s", diff)
	}
}
