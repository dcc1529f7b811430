package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// TestSaveSnapshotSettings: a machine saves a snapshot with the configuration that it has. One that the specification has since does not
// come along, and waits for the end of the operation.
func TestSaveSnapshotSettings(t *testing.T) {
	const usual = "/var/lib/rancher/k3s/server/db/snapshots"
	in := machineOf(t, k3s, "a", "eci")
	wanted := in.Cluster
	wanted.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Bucket: "backups"}}
	wanted.Spec.MachineGlobalConfig = config(t, `{"etcd-snapshot-dir": "/other"}`)
	before, problems := Plan(in)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	after, problems := Plan(Inputs{Cluster: wanted, Machine: in.Machine})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cluster        Cluster
		plan           plans.Plan
		folder, bucket string
	}{
		"no bucket":                       {in.Cluster, before, usual, "false"},
		"a bucket":                        {wanted, after, "/other", "true"},
		"a bucket that waits":             {wanted, before, usual, "later"},
		"a bucket until the change of it": {in.Cluster, after, "/other", "true"},
		"a configuration of others":       {wanted, plans.Plan{}, "/other", "true"},
	} {
		plan := WithTask(c.cluster, in.Machine, c.plan, &operationv1.ETCDSnapshotSave{},
			operation.Task{Step: operationv1.StepSave, Name: operation.TaskSaveSnapshot})
		args := instruction(t, plan, "etcd-snapshot-save").Args
		i := slices.Index(args, "save-snapshot")
		if want := []string{"k3s", c.folder, "on-demand", c.bucket}; i < 0 || !slices.Equal(args[i+1:], want) {
			t.Errorf("%s: got %q, want %q", name, args[i+1:], want)
		}
	}
}

// TestSaveSnapshotLater: that a snapshot is not in the bucket since its settings have not come to the machine is no fault of S3, and is
// said. The file is saved and stays.
func TestSaveSnapshotLater(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	write := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	runtime := write("k3s", []byte(runtimeStub))
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", saveSnapshotSh, "save-snapshot", runtime, folder, "on-demand", "later", "--name")
	cmd.Env = append(os.Environ(), "FOLDER="+folder, "CONTENT="+write("content", snapshotFile()), "TWO=", "UPLOADED=1", "ASKED=")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "does not have the settings of spec.rkeConfig.etcd.s3 yet. Save another one") {
		t.Errorf("%v: %s", err, out)
	}
	if left, _ := filepath.Glob(folder + "/*"); len(left) != 1 {
		t.Errorf("left are %v", left)
	}
}
