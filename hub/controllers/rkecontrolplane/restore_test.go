package rkecontrolplane

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

func scopeWithMachines() *scope {
	s := &scope{
		controlPlane: &rkev1.RKEControlPlane{Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1"}},
		cluster:      &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
	}
	for _, name := range []string{"a", "b"} {
		m := &machine{machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}}
		m.machine.Status.NodeRef.Name = "node-" + name
		s.machines = append(s.machines, m)
	}
	return s
}

func localSnapshot() *rkev1.ETCDSnapshot {
	return &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "snap"}, Spec: rkev1.ETCDSnapshotSpec{ClusterName: "c"},
		SnapshotFile: rkev1.ETCDSnapshotFile{Name: "s", NodeName: "node-b", Location: "file:///snapshots/s", Size: 7}}
}

func TestSnapshot(t *testing.T) {
	s := scopeWithMachines()
	got := s.snapshot(localSnapshot())
	want := operationv1.RestoredSnapshot{Name: "s", Path: "/snapshots/s", Size: 7}
	if got.Problem != "" || got.Machine != "b" || got.File != want || got.Wanted != "v1.36.3+k3s1" {
		t.Errorf("got %+v", got)
	}
	since := metav1.NewTime(time.Unix(1, 0))
	missing := localSnapshot()
	missing.Status = rkev1.ETCDSnapshotStatus{Missing: true, MissingSince: &since}
	if got := s.snapshot(missing); got.Problem != "" || !got.MissingSince.Equal(since.Time) {
		t.Errorf("missing: %+v", got)
	}
	withChecksum := localSnapshot()
	withChecksum.Annotations = map[string]string{rkev1.SnapshotSHA256Annotation: strings.Repeat("a", 64)}
	if got := s.snapshot(withChecksum); got.Problem != "" || got.File.SHA256 != strings.Repeat("a", 64) {
		t.Errorf("with a checksum: %+v", got)
	}

	bySnapshot := localSnapshot()
	bySnapshot.Labels = map[string]string{rkev1.MachineNameLabel: "elsewhere"}
	if got := s.snapshot(bySnapshot); got.Machine != "elsewhere" {
		t.Errorf("by its label: %s", got.Machine)
	}
	bySnapshot.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", UID: "uid-c"}, {Kind: "Machine", UID: "uid-a"}}
	if got := s.snapshot(bySnapshot); got.Machine != "a" {
		t.Errorf("by its owner: %s", got.Machine)
	}
}

// TestSnapshotInBucket: the machines need endpoint and credentials of the bucket, which a Cluster names in etcd.s3 or by arguments. What a
// user changes in the Cluster may not have arrived, so that it is not a problem of the snapshot.
func TestSnapshotInBucket(t *testing.T) {
	arguments := func(endpoint string) func(*scope) {
		return func(s *scope) {
			s.inputs.Spec.ETCD = nil
			s.inputs.Spec.MachineGlobalConfig.Data = map[string]any{"etcd-s3": true, "etcd-s3-bucket": "b", "etcd-s3-endpoint": endpoint}
		}
	}
	for name, tc := range map[string]struct {
		change func(*scope)
		want   string
	}{
		"etcd.s3":   {change: func(*scope) {}},
		"arguments": {change: arguments("s3.example.com")},
		"nothing":   {change: func(s *scope) { s.inputs.Spec.ETCD = nil }, want: "the Cluster has no bucket"},
		"another endpoint": {change: arguments("other.example.com"), want: `"other.example.com": correct the endpoint in ` +
			"spec.rkeConfig.etcd.s3, or, if the bucket has moved there, delete the ETCDSnapshotFiles"},
		"unmanaged":            {change: func(s *scope) { s.controlPlane.Spec = rkev1.RKEControlPlaneSpec{UnmanagedConfig: true} }},
		"no machine with etcd": {change: func(s *scope) { s.machines = nil }},
	} {
		s, from := scopeWithBucket(t)
		tc.change(s)
		got := s.snapshot(from)
		if got.Problem != "" || got.Unconfigured != "" != (tc.want != "") || !strings.Contains(got.Unconfigured, tc.want) {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Machine != "" || got.File.Path != "" || got.File.S3.Bucket != "b" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSnapshotInNoFolder: a snapshot from before the cluster had a folder in its bucket is restored from where it is. Where the
// ETCDSnapshot does not say where that is, the folder is that of the configuration.
func TestSnapshotInNoFolder(t *testing.T) {
	for name, tc := range map[string]struct {
		location, configured, want string
	}{
		"no folder":                 {"s3://b/s", "a folder", operationv1.BucketRoot},
		"no folder in either":       {"s3://b/s", "", ""},
		"not known":                 {"", "a folder", ""},
		"in the one of the cluster": {"s3://b/a folder/s", "a folder", ""},
	} {
		s, from := scopeWithBucket(t)
		s.inputs.Spec.ETCD.S3.Folder, from.SnapshotFile.Location, from.SnapshotFile.S3.Folder = tc.configured, tc.location, ""
		if got := s.snapshot(from); got.Problem != "" || got.Unconfigured != "" || got.File.S3.Folder != tc.want {
			t.Errorf("%s: got %+v, %+v", name, got, got.File.S3)
		}
	}
}

// TestSnapshotFolders: RKE2 and k3s take any folder of a bucket, so that its snapshots can be restored and deleted.
func TestSnapshotFolders(t *testing.T) {
	for _, folder := range []string{"env=prod/cluster=a", "/team+b", "größe", "a'b (c)", "--debug"} {
		s, from := scopeWithBucket(t)
		s.inputs.Spec.ETCD.S3.Folder, from.SnapshotFile.S3.Folder = folder, folder
		from.SnapshotFile.Location = "s3://b/" + folder + "/s"
		if got := s.snapshot(from); got.Problem != "" || got.Unconfigured != "" || got.File.S3.Folder != folder {
			t.Errorf("restoring from %q: %+v, %+v", folder, got, got.File.S3)
		}
		if got := s.deletion(from); got.Problem != "" || got.Unreachable != "" {
			t.Errorf("deleting from %q: %+v", folder, got)
		}
	}
}

// What reaches the command line of a machine is checked, and what cannot work is said before anything is stopped.
func TestSnapshotProblems(t *testing.T) {
	s3 := func(set func(*rkev1.ETCDSnapshotS3)) func(*scope, *rkev1.ETCDSnapshot) {
		return func(_ *scope, from *rkev1.ETCDSnapshot) {
			from.SnapshotFile.S3 = &rkev1.ETCDSnapshotS3{Bucket: "b"}
			set(from.SnapshotFile.S3)
		}
	}
	for text, change := range map[string]func(*scope, *rkev1.ETCDSnapshot){
		`is of the Cluster "d"`: func(_ *scope, from *rkev1.ETCDSnapshot) { from.Spec.ClusterName = "d" },
		"could not be saved":    func(_ *scope, from *rkev1.ETCDSnapshot) { from.SnapshotFile.Status = "failed" },
		"no valid snapshotFile": func(_ *scope, from *rkev1.ETCDSnapshot) { from.SnapshotFile.Name = "--debug" },
		"that is the path":      func(_ *scope, from *rkev1.ETCDSnapshot) { from.SnapshotFile.Location = "" },
		"snapshotFile.location": func(_ *scope, from *rkev1.ETCDSnapshot) {
			from.SnapshotFile.Location = "file:///snapshots/../etc/shadow"
		},
		"not the SHA-256 of a file": func(_ *scope, from *rkev1.ETCDSnapshot) {
			from.Annotations = map[string]string{rkev1.SnapshotSHA256Annotation: "$(reboot)"}
		},
		"file:///var/lib":  func(_ *scope, from *rkev1.ETCDSnapshot) { from.SnapshotFile.Location = "file:///a $(reboot)" },
		"no valid bucket":  s3(func(s *rkev1.ETCDSnapshotS3) { s.Bucket = "b --debug" }),
		"bucket, folder":   s3(func(s *rkev1.ETCDSnapshotS3) { s.Folder = "f\n--debug" }),
		"folder or region": s3(func(s *rkev1.ETCDSnapshotS3) { s.Region = "eu 1" }),
	} {
		s, from := scopeWithMachines(), localSnapshot()
		change(s, from)
		if got := s.snapshot(from); !strings.Contains(got.Problem, text) {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

// TestSnapshotOfUnknownToken: clusters that use the same folder of a bucket list each other's snapshots. One of another cluster would stop
// all machines before it turns out that they cannot read it.
func TestSnapshotOfUnknownToken(t *testing.T) {
	const hash = "2cf24dba5fb0" // of "hello", as k3s writes it
	for name, tc := range map[string]struct {
		hash, key, token   string
		unmanaged, refused bool
	}{
		"the cluster's":           {hash: hash, key: "serverToken", token: "hello"},
		"with an authority":       {hash: hash, key: "serverToken", token: "K10" + strings.Repeat("0", 64) + "::server:hello"},
		"as user and password":    {hash: hash, key: "serverToken", token: "K10server:hello"},
		"replaced since":          {hash: hash, key: "serverToken-20261105T120000Z", token: "hello"},
		"about to be the next":    {hash: hash, key: "newServerToken", token: "hello"},
		"left by a rotation":      {hash: hash, key: "newServerToken-20261105T120000Z", token: "hello"},
		"of agents":               {hash: hash, key: "agentToken", token: "hello", refused: true},
		"another cluster's":       {hash: hash, key: "serverToken", token: "hello2", refused: true},
		"not known":               {key: "serverToken", token: "other"},
		"not written by this hub": {hash: hash, key: "serverToken", token: "other", unmanaged: true},
	} {
		s, from := scopeWithMachines(), localSnapshot()
		s.setTokens(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "c-rke-state"}, Data: map[string][]byte{tc.key: []byte(tc.token)}})
		s.controlPlane.Spec.UnmanagedConfig = tc.unmanaged
		if tc.hash != "" {
			from.Annotations = map[string]string{rkev1.SnapshotTokenHashAnnotation: tc.hash}
		}
		got := s.snapshot(from).Problem
		if (got != "") != tc.refused || tc.refused && !strings.Contains(got, "Secret c-rke-state does not have") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A name that no object can have is not read: the client would refuse it in each reconcile, and so hold up all plans of the cluster.
func TestSnapshotNameInvalid(t *testing.T) {
	for _, name := range []string{"a/b", "..", "A"} {
		s, op, in := scopeWithMachines(), &operationv1.ETCDSnapshotRestore{}, operation.Inputs{}
		op.Spec.Args.Name, s.operation = name, op
		if err := (&Reconciler{}).readSnapshot(t.Context(), s, &in); err != nil || !strings.Contains(in.Snapshot.Problem, "spec.args.name") {
			t.Errorf("%q: %+v, %v", name, in.Snapshot, err)
		}
	}
}

// Machines that a restore has stopped keep everything from being delivered, until one of them is deleted or started.
func TestStopped(t *testing.T) {
	s := scopeWithMachines()
	if got := s.stopped(); got != (rollout.Wait{}) {
		t.Errorf("got %+v", got)
	}
	s.machines[1].report.Delivered.Instructions = []plans.Instruction{{CommonInstruction: plans.CommonInstruction{Name: "stop",
		Env: []string{"DROVER_OPERATION=uid/Shutdown"}}}}
	if got := s.stopped(); got.Reason != rollout.ReasonRestoreFailed || !strings.Contains(got.Message, "left b stopped") ||
		!strings.Contains(got.Message, "delete and replace these Machines") {
		t.Errorf("got %+v", got)
	}
	restore := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	restore.Status.Phase, restore.Status.Step = operationv1.PhaseInProgress, operationv1.StepShutdown
	s.operation = restore
	if got := s.stopped(); got.Reason != rollout.ReasonWaitingForOperation || !strings.Contains(got.Message, "ETCDSnapshotRestore r") {
		t.Errorf("got %+v", got)
	}
	s.operation, s.machines[1].state.Deleting = nil, true
	if got := s.stopped(); got != (rollout.Wait{}) {
		t.Errorf("got %+v", got)
	}
}
