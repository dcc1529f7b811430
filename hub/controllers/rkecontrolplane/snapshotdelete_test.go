package rkecontrolplane

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// followedSnapshot is an ETCDSnapshot that follows what the cluster lists, on the machine b.
func followedSnapshot() *rkev1.ETCDSnapshot {
	s := localSnapshot()
	s.Annotations = map[string]string{rkev1.SnapshotNameAnnotation: "local-s"}
	return s
}

// scopeWithBucket is a cluster with a bucket, and a snapshot in it.
func scopeWithBucket(t *testing.T) (*scope, *rkev1.ETCDSnapshot) {
	t.Helper()
	s, from := scopeWithMachines(), followedSnapshot()
	known, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	s.controlPlane.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Endpoint: "s3.example.com", Bucket: "b", Folder: "a folder"}}
	s.inputs = render.Cluster{Spec: s.controlPlane.Spec, Release: known}
	for _, m := range s.machines {
		m.state.Etcd, m.inputs.Etcd, m.inputs.ControlPlane = true, true, true
	}
	from.SnapshotFile.Location = "s3://b/a folder/s"
	from.SnapshotFile.S3 = &rkev1.ETCDSnapshotS3{Endpoint: "s3.example.com", Bucket: "b", Folder: "a folder"}
	return s, from
}

func TestDeletion(t *testing.T) {
	s := scopeWithMachines()
	want := operation.Deletion{Found: true, Followed: true, Listed: true, Machine: "b", Node: "node-b",
		File: operationv1.DeletedSnapshot{Name: "s", Location: "file:///snapshots/s"}}
	if got := s.deletion(followedSnapshot()); got != want {
		t.Errorf("got %+v", got)
	}
	missing := followedSnapshot()
	missing.Status.Missing = true
	want.Listed = false
	if got := s.deletion(missing); got != want {
		t.Errorf("missing: %+v", got)
	}
	byUser := localSnapshot()
	byUser.SnapshotFile.Location = "/snapshots/s"
	want.Followed = false
	if got := s.deletion(byUser); got != want {
		t.Errorf("of a user: %+v", got)
	}

	s, from := scopeWithBucket(t)
	want = operation.Deletion{Found: true, Followed: true, Listed: true, InBucket: true, Machine: "b", Node: "node-b",
		File: operationv1.DeletedSnapshot{Name: "s", Location: "s3://b/a folder/s"}}
	if got := s.deletion(from); got != want {
		t.Errorf("in a bucket: %+v", got)
	}
	// Of a configuration that the hub does not write, the snapshot itself says where the bucket is.
	s.controlPlane.Spec = rkev1.RKEControlPlaneSpec{UnmanagedConfig: true}
	if got := s.deletion(from); got != want {
		t.Errorf("in a bucket of an unmanaged configuration: %+v", got)
	}
}

// What reaches the command line of a machine is checked, and only what the machine is configured with can be deleted.
func TestDeletionUnreachable(t *testing.T) {
	for text, change := range map[string]func(*scope, *rkev1.ETCDSnapshot){
		"could not be saved": func(_ *scope, from *rkev1.ETCDSnapshot) { from.SnapshotFile.Status = "failed" },
		"no valid snapshotFile.name": func(_ *scope, from *rkev1.ETCDSnapshot) {
			from.SnapshotFile.Name = "--etcd-s3-endpoint=evil.example.com"
		},
		"no snapshotFile.location": func(_ *scope, from *rkev1.ETCDSnapshot) {
			from.SnapshotFile.S3, from.SnapshotFile.Location = nil, "file:///snapshots/$(reboot)/s"
		},
		"the path of snapshotFile.name": func(_ *scope, from *rkev1.ETCDSnapshot) {
			from.SnapshotFile.S3, from.SnapshotFile.Location = nil, "file:///snapshots/../s"
		},
		"that is the path": func(_ *scope, from *rkev1.ETCDSnapshot) {
			from.SnapshotFile.S3, from.SnapshotFile.Location = nil, "file:///snapshots/another"
		},
		"no valid snapshotFile.location":    func(_ *scope, from *rkev1.ETCDSnapshot) { from.SnapshotFile.Location = "s3://b/a\nfolder/s" },
		"would be s3://b/a folder/s: set":   func(_ *scope, from *rkev1.ETCDSnapshot) { from.SnapshotFile.Location = "s3://other/a folder/s" },
		"it is at s3://b/a folder/deeper/s": func(_ *scope, from *rkev1.ETCDSnapshot) { from.SnapshotFile.Location = "s3://b/a folder/deeper/s" },
		"the cluster has no bucket":         func(s *scope, _ *rkev1.ETCDSnapshot) { s.inputs.Spec.ETCD = nil },
		`"evil.example.com", and the cluster uses "s3.example.com": if the bucket has moved`: func(_ *scope, from *rkev1.ETCDSnapshot) {
			from.SnapshotFile.S3.Endpoint = "evil.example.com"
		},
	} {
		s, from := scopeWithBucket(t)
		change(s, from)
		if got := s.deletion(from); !strings.Contains(got.Unreachable, text) || got.Problem != "" {
			t.Errorf("%q: got %+v", text, got)
		}
	}
	s, from := scopeWithBucket(t)
	from.Spec.ClusterName = "d"
	if got := s.deletion(from); got.Problem != `ETCDSnapshot snap is of the Cluster "d", not of c` {
		t.Errorf("got %+v", got)
	}
}

// TestDeletionOfUnknownToken: a snapshot of another cluster in the same folder of the bucket is deleted by that cluster alone. What is on a
// machine of the cluster is its own, and what no machine can reach stays.
func TestDeletionOfUnknownToken(t *testing.T) {
	for token, want := range map[string]string{"hello": "", "of another cluster": "uses the same folder of the bucket"} {
		s, from := scopeWithBucket(t)
		s.setTokens(&corev1.Secret{Data: map[string][]byte{serverTokenKey: []byte(token)}})
		from.Annotations[rkev1.SnapshotTokenHashAnnotation] = "2cf24dba5fb0" // of "hello", as k3s writes it
		if got := s.deletion(from).Problem; (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: in a bucket: %q", token, got)
		}
		from.SnapshotFile.Location = "s3://b/another folder/s"
		if got := s.deletion(from); got.Problem != "" || got.Unreachable == "" {
			t.Errorf("%q: in another folder: %+v", token, got)
		}
		from.SnapshotFile.S3, from.SnapshotFile.Location = nil, "file:///snapshots/s"
		if got := s.deletion(from).Problem; got != "" {
			t.Errorf("%q: on a machine: %q", token, got)
		}
	}
}

// TestEndOfARestoreThatTheCacheHasNotSeen: a deletion is refused only where the API server says, too, that the restore has not ended.
func TestEndOfARestoreThatTheCacheHasNotSeen(t *testing.T) {
	restore := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Name: "back"}}
	restore.Spec.Args.Name, restore.Spec.ClusterRef.Name = "snap", "c"
	for phase, want := range map[operationv1.Phase]bool{operationv1.PhaseInProgress: true, operationv1.PhaseSucceeded: false} {
		s, op, live := scopeWithMachines(), &operationv1.ETCDSnapshotDelete{}, restore.DeepCopy()
		op.Spec.Args.Name, live.Status.Phase = "snap", phase
		s.waiting = []operationv1.Operation{restore, op}
		builder := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, operationv1.AddToScheme)).WithObjects(live)
		r := &Reconciler{Now: time.Now, Live: withOperationFields(t, builder).Build()}
		got, err := r.refuseInUse(t.Context(), s, op)
		if err != nil || got != want || op.Status.Phase.Ended() != want {
			t.Errorf("a restore that is %s: refused %v, %v, %+v", phase, got, err, op.Status)
		}
	}
}
