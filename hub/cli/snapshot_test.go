package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestCreateOperation(t *testing.T) {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	plane := func(group, kind string) clusterv1.ClusterSpec {
		return clusterv1.ClusterSpec{ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: "p"}}
	}
	made := named("demo")
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "demo", UID: "u"}}
	rke := provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}
	c := fakeAPI(t,
		&provisioningv1.Cluster{ObjectMeta: named("demo"), Spec: rke},
		&provisioningv1.Cluster{ObjectMeta: named("new"), Spec: rke},
		&provisioningv1.Cluster{ObjectMeta: named("taken"), Spec: rke},
		&provisioningv1.Cluster{ObjectMeta: named("imported")},
		&clusterv1.Cluster{ObjectMeta: made, Spec: plane("rke.cattle.io", "RKEControlPlane")},
		&clusterv1.Cluster{ObjectMeta: named("taken"), Spec: plane("rke.cattle.io", "RKEControlPlane")},
		&clusterv1.Cluster{ObjectMeta: named("plain"), Spec: plane("rke.cattle.io", "RKEControlPlane")},
		&clusterv1.Cluster{ObjectMeta: named("other"), Spec: plane("controlplane.cluster.x-k8s.io", "KubeadmControlPlane")})
	for _, test := range []struct {
		cluster, apiVersion, err string
		ttl                      time.Duration
		want                     int64
	}{
		{cluster: "demo", ttl: time.Hour, apiVersion: provisioningv1.GroupVersion.String(), want: 3600},
		{cluster: "new", ttl: time.Hour, apiVersion: provisioningv1.GroupVersion.String(), want: 3600},
		{cluster: "taken", err: "the Cluster ns/taken has no machines: Cluster API Cluster taken exists and was not made for this Cluster"},
		{cluster: "plain", ttl: -time.Millisecond, apiVersion: clusterv1.GroupVersion.String(), want: -1},
		{cluster: "imported", err: "the Cluster ns/imported is imported"},
		{cluster: "other", err: "the control plane of Cluster ns/other is not an RKEControlPlane"},
		{cluster: "none", err: "there is no Cluster ns/none"},
	} {
		op, o := &operationv1.ETCDSnapshotSave{}, &operationOptions{ttl: test.ttl}
		err := o.create(t.Context(), io.Discard, c, client.ObjectKey{Namespace: "ns", Name: test.cluster}, op)
		if test.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%s: got %v", test.cluster, err)
			}
			continue
		}
		want := operationv1.ClusterReference{APIVersion: test.apiVersion, Kind: "Cluster", Name: test.cluster}
		if err != nil || op.Spec.ClusterRef != want || op.Spec.TTL != test.want || op.Namespace != "ns" ||
			!strings.HasPrefix(op.Name, test.cluster+"-") {
			t.Errorf("%s: got %+v, %v", test.cluster, op, err)
		}
	}
}

func TestIsPaused(t *testing.T) {
	named := func(name string, paused bool) *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: clusterv1.ClusterSpec{Paused: &paused}}
	}
	annotated := named("annotated", false)
	annotated.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	c := fakeAPI(t, named("demo", false), named("paused", true), annotated)
	for name, want := range map[string]bool{"demo": false, "paused": true, "annotated": false, "none": false} {
		if got := isPaused(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: name}); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestRestorable(t *testing.T) {
	snapshot := func(name, cluster, status string) *rkev1.ETCDSnapshot {
		s := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		s.Spec.ClusterName = cluster
		s.SnapshotFile = rkev1.ETCDSnapshotFile{Name: name, Status: status, Message: "access\ndenied"}
		return s
	}
	missing := snapshot("missing", "demo", "successful")
	missing.Status.Missing = true
	c := fakeAPI(t, snapshot("good", "demo", "successful"), snapshot("copied", "demo", ""), missing, snapshot("bad", "demo", "failed"),
		snapshot("stray", "", "successful"))
	for name, want := range map[string]string{
		"good": "", "copied": "", "missing": "", "bad": "it failed: access denied", "stray": "names no Cluster",
		"none": "there is no ETCDSnapshot ns/none",
	} {
		line, err := restorable(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: name})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && line.Cluster != "demo" {
			t.Errorf("%s: got %+v, %v", name, line, err)
		}
	}
}

func TestCertificateRotation(t *testing.T) {
	if got := certificateRotation([]string{"etcd", "scheduler"}).Spec.Services; len(got) != 2 || got[1] != "scheduler" {
		t.Errorf("got %v", got)
	}
}

func TestListSnapshots(t *testing.T) {
	snapshot := func(name string, taken metav1.Time, change func(*rkev1.ETCDSnapshot)) *rkev1.ETCDSnapshot {
		s := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Labels: map[string]string{rkev1.ClusterNameLabel: "demo"}}}
		s.Spec.ClusterName = "demo"
		s.SnapshotFile = rkev1.ETCDSnapshotFile{Name: name + ".zip", NodeName: "n1", CreatedAt: &taken, Size: 5 << 20, Status: "successful"}
		if change != nil {
			change(s)
		}
		return s
	}
	since := at(0)
	c := fakeAPI(t, snapshot("local", at(0), nil),
		snapshot("s3", at(1), func(s *rkev1.ETCDSnapshot) {
			s.SnapshotFile.S3 = &rkev1.ETCDSnapshotS3{Bucket: "backups", Folder: "demo"}
			s.SnapshotFile.Size, s.SnapshotFile.Status, s.SnapshotFile.Message = 0, "failed", "access\ndenied"
		}),
		snapshot("gone", at(2), func(s *rkev1.ETCDSnapshot) {
			s.Status = rkev1.ETCDSnapshotStatus{Missing: true, MissingSince: &since}
		}),
		snapshot("other", at(2), func(s *rkev1.ETCDSnapshot) { s.Labels[rkev1.ClusterNameLabel] = "another" }))
	lines, err := listSnapshots(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	want := `SNAPSHOT  CLUSTER  LOCATION           SIZE   AGE  STATUS
ns/local  demo     node n1            5.0Mi  60s  successful
ns/s3     demo     s3://backups/demo  0      59s  failed: access denied
ns/gone   demo     node n1            5.0Mi  58s  missing for 60s, successful
`
	got := table(t, func(out *strings.Builder) error { return writeSnapshots(out, lines, noon.Add(time.Minute)) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if lines, err = listSnapshots(t.Context(), c, client.ObjectKey{}); err != nil || len(lines) != 4 {
		t.Errorf("%d of all clusters (%v)", len(lines), err)
	}
}

// TestSnapshotPages: the snapshots of a large fleet are listed with few requests.
func TestSnapshotPages(t *testing.T) {
	requests := 0
	c := interceptor.NewClient(fakeAPI(t), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			requests++
			page := list.(*rkev1.ETCDSnapshotList)
			page.Items = make([]rkev1.ETCDSnapshot, (&client.ListOptions{}).ApplyOptions(opts).Limit)
			if requests*len(page.Items) < 10_000 {
				page.Continue = "next"
			}
			return nil
		},
	})
	lines, err := listSnapshots(t.Context(), c, client.ObjectKey{})
	if err != nil || len(lines) != 10_000 || requests > 20 {
		t.Errorf("%d snapshots in %d requests, %v", len(lines), requests, err)
	}
}

// TestFailedUpload: who restores from a bucket is warned where the cluster cannot use it any more, before machines are stopped.
func TestFailedUpload(t *testing.T) {
	snapshot := func(name string, second int, bucket, status string) *rkev1.ETCDSnapshot {
		created := at(second)
		s := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Labels: map[string]string{rkev1.ClusterNameLabel: "demo"}}}
		s.Spec.ClusterName = "demo"
		s.SnapshotFile = rkev1.ETCDSnapshotFile{Name: name, CreatedAt: &created, Status: status, Message: "access\ndenied"}
		if bucket != "" {
			s.SnapshotFile.S3 = &rkev1.ETCDSnapshotS3{Bucket: bucket}
		}
		return s
	}
	c := fakeAPI(t, snapshot("good", 0, "backups", "successful"), snapshot("failed", 1, "backups", "failed"),
		snapshot("on-node", 2, "", "successful"), snapshot("repaired", 3, "other", "failed"), snapshot("later", 4, "other", "successful"))
	for bucket, want := range map[string]string{
		"backups": "the last snapshot in s3://backups failed 59s ago: access denied", "other": "", "": "", "unknown": "",
	} {
		line := snapshotLine{Namespace: "ns", Cluster: "demo", Bucket: bucket}
		if got := failedUpload(t.Context(), c, line, noon.Add(time.Minute)); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", bucket, got, want)
		}
	}
}

// TestConfirmRestore: who restores a snapshot at a terminal sees what is lost. A script is not asked.
func TestConfirmRestore(t *testing.T) {
	line := snapshotLine{Name: "snap", Cluster: "demo", File: "nightly-m1", Created: metav1.Time{Time: noon}}
	for answer, confirmed := range map[string]bool{"yes\n": true, "yes": true, "y\n": false, "": false} {
		var out strings.Builder
		got, err := confirmRestore(strings.NewReader(answer), &out, "ns", line, noon.Add(26*time.Hour))
		if err != nil || got != confirmed || !strings.Contains(out.String(), "This stops Cluster ns/demo, and what was written since "+
			noon.UTC().Format(time.RFC3339)+" (26h ago) is lost:") {
			t.Errorf("%q: got %t, %v, %q", answer, got, err, out.String())
		}
	}
	if onTerminal(strings.NewReader("yes")) {
		t.Error("a pipe is taken for a terminal")
	}
}
