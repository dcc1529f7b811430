package render

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// TestRestoreChecksBucket: the bucket is read before machines are stopped, with the settings of S3 that the machine has, and only where the
// restore would read it with the same. Keys are never among the arguments.
func TestRestoreChecksBucket(t *testing.T) {
	in := machineOf(t, k3s, "a", "eci")
	in.Cluster.Bootstrapped = true
	with := func(key, ca string) Cluster {
		c := in.Cluster
		c.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Bucket: "backups", Retention: 9, EndpointCA: ca, CloudCredentialName: "keys"}}
		c.Objects = Objects{{Kind: KindSecret, Name: "keys"}: {Data: map[string][]byte{"accessKey": []byte("AKIA"), "secretKey": []byte(key)}}}
		return c
	}
	wanted := with("hush", "ca")
	delivered, problems := Plan(Inputs{Cluster: wanted, Machine: in.Machine})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	unapplied := in.Machine
	unapplied.Unapplied = true
	bucket := &operationv1.RestoredSnapshotS3{Bucket: "other", Folder: "a b"}
	root := &operationv1.RestoredSnapshotS3{Folder: operationv1.BucketRoot}
	lists := []string{"k3s", "--etcd-s3", "--etcd-s3-bucket=other", "--etcd-s3-folder=a b"}
	for name, c := range map[string]struct {
		cluster Cluster
		machine Machine
		before  plans.Plan
		s3      *operationv1.RestoredSnapshotS3
		want    []string
	}{
		"the same settings":  {wanted, in.Machine, delivered, bucket, lists},
		"a file":             {wanted, in.Machine, delivered, nil, nil},
		"other keys":         {with("other", "ca"), in.Machine, delivered, bucket, nil},
		"another authority":  {with("hush", "other"), in.Machine, delivered, bucket, nil},
		"a plan not applied": {wanted, unapplied, delivered, bucket, nil},
		"a new machine":      {wanted, in.Machine, plans.Plan{}, bucket, nil},
		"no folder":          {wanted, in.Machine, delivered, root, []string{"k3s", "--etcd-s3", "--etcd-s3-folder="}},
	} {
		plan := WithTask(c.cluster, c.machine, c.before, restoring("a", c.s3),
			operation.Task{Step: "Preflight", Name: operation.TaskCheckSnapshot, Apart: true})
		args := instruction(t, plan, "etcd-snapshot-check").Args
		if got := args[8:]; !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if all := strings.Join(args, " "); strings.Contains(all, "hush") || strings.Contains(all, "AKIA") {
			t.Errorf("%s: a key is among the arguments", name)
		}
	}
}

// TestCheckScriptBucket: only what shows that the snapshot cannot be downloaded ends a restore. A server that does not answer may be the
// reason of the restore. Each time the bucket is listed with another timeout.
func TestCheckScriptBucket(t *testing.T) {
	const (
		table   = "Name   Location   Size   Created\n"
		refused = `time="2026-11-01T12:00:00Z" level=fatal msg="see server log for details: failed to initialize S3 client: `
	)
	for name, c := range map[string]struct {
		list string
		exit int
		fail bool
		says string
	}{
		"listed":        {table + "s   s3://backups/a b/s   7   2026-11-01T12:00:00Z", 0, false, "the bucket can be read"},
		"not listed":    {table + "other   s3://backups/a b/other   7   2026-11-01T12:00:00Z", 0, true, "the snapshot s is not in the bucket"},
		"only a file":   {table + "s   file:///snapshots/s   7   2026-11-01T12:00:00Z", 0, true, "the snapshot s is not in the bucket"},
		"another table": {"s   7   2026-11-01T12:00:00Z", 0, false, "the bucket can be read"},
		"wrong keys": {refused + `failed to test for existence of bucket backups: Access Denied."`, 1, true,
			"the bucket cannot be read: failed to test for existence of bucket backups: Access Denied.\n"},
		"no route": {refused + `failed to test for existence of bucket backups: Head \"https://s3:9000/backups/\": i/o timeout"`, 1, true,
			"i/o timeout\n"},
		"no bucket":     {refused + `bucket backups does not exist"`, 1, true, "the bucket cannot be read: bucket backups does not exist\n"},
		"no API":        {refused + `failed to set S3 snapshot cluster ID: etcdserver: request timed out"`, 1, false, "was not checked"},
		"a huge bucket": {`level=fatal msg="see server log for details: etcd-snapshot error ID 04711"`, 1, false, "was not checked"},
		"no server":     {`level=fatal msg="dial tcp 127.0.0.1:6443: connect: connection refused"`, 1, false, "was not checked"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write(filepath.Join(h.bin, "k3s"),
				fmt.Sprintf("#!/bin/sh\necho k3s \"$@\" >>\"$LOG\"\ncat <<'EOF'\n%s\nEOF\nexit %d\n", c.list, c.exit))
			h.write(filepath.Join(h.bin, "date"), "#!/bin/sh\necho 1790000567\n")
			out, called, err := h.run(restoreCheckSh, "", "7", h.data, "", "s", "k3s", "--etcd-s3", "--etcd-s3-folder=a b")
			if (err != nil) != c.fail || !strings.Contains(out, c.says) {
				t.Errorf("%v: %s", err, out)
			}
			if called != "k3s etcd-snapshot list --etcd-s3 --etcd-s3-folder=a b --etcd-s3-timeout=30567ms\n" {
				t.Errorf("called: %s", called)
			}
		})
	}
	h := newHost(t)
	for what, args := range map[string][]string{
		"settings of S3 on this machine are not those of the Cluster": nil,
		"no server on this machine has listed it":                     {"k3s-that-is-not-installed", "--etcd-s3"},
	} {
		out, called, err := h.run(restoreCheckSh, append([]string{"", "7", h.data, "", "s"}, args...)...)
		if err != nil || called != "" || !strings.Contains(out, what) {
			t.Errorf("%q: %v: %s%s", args, err, out, called)
		}
	}
}
