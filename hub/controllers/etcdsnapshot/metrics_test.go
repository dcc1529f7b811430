package etcdsnapshot

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestCollector: the newest snapshot that was saved and is there counts, of machines and of the bucket apart: copies in a bucket fail while
// machines go on saving. Where all have failed, the time is 0, which is old for any alert.
func TestCollector(t *testing.T) {
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	var objects []client.Object
	add := func(cluster string, age time.Duration, change func(*rkev1.ETCDSnapshot)) {
		s := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: fmt.Sprintf("%s-%d", cluster, len(objects)),
			Annotations: map[string]string{rkev1.SnapshotNameAnnotation: "file"}}}
		s.Spec.ClusterName, s.SnapshotFile.Status, s.SnapshotFile.CreatedAt = cluster, "successful", &metav1.Time{Time: noon.Add(-age)}
		if change != nil {
			change(s)
		}
		objects = append(objects, s)
	}
	failed := func(s *rkev1.ETCDSnapshot) { s.SnapshotFile.Status = "failed" }
	inBucket := func(s *rkev1.ETCDSnapshot) { s.SnapshotFile.S3 = &rkev1.ETCDSnapshotS3{Bucket: "b"} }
	add("a", 5*time.Hour, nil)
	add("a", 2*time.Hour, nil)
	add("a", time.Hour, failed)
	add("a", 30*time.Hour, inBucket)
	add("a", time.Hour, func(s *rkev1.ETCDSnapshot) { inBucket(s); failed(s) })
	add("a", time.Minute, func(s *rkev1.ETCDSnapshot) { s.Status.Missing = true })
	add("a", time.Minute, func(s *rkev1.ETCDSnapshot) { s.Annotations = nil }) // a user's
	add("b", time.Hour, failed)
	add("c", time.Hour, func(s *rkev1.ETCDSnapshot) { s.Status.Missing = true })

	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme)).WithObjects(objects...).Build()
	elected, registry := make(chan struct{}), prometheus.NewRegistry()
	registry.MustRegister(newCollector(c, elected))
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("before the election: %v, %v", families, err)
	}
	close(elected)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	got := map[string]int64{}
	for _, m := range families[0].GetMetric() {
		labels := map[string]string{}
		for _, pair := range m.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		got[labels["namespace"]+"/"+labels["cluster"]+" "+labels["storage"]] = int64(m.GetGauge().GetValue())
	}
	want := map[string]int64{"fleet/a local": noon.Add(-2 * time.Hour).Unix(), "fleet/a s3": noon.Add(-30 * time.Hour).Unix(),
		"fleet/b local": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the times differ (-want +got):\n%s", diff)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
