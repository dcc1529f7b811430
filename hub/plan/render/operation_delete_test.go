package render

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
)

// snapshotCommands stands for k3s: it lists and deletes files in the folders local and bucket below $FAKE. After a deletion, the names of
// the files of this machine that the cluster lists are in the file reported. With the file stuck it deletes nothing and says nothing of it,
// with the file down it fails.
const snapshotCommands = `#!/bin/sh
verb=$2 s3= dir=$FAKE/local
shift 2
echo "$verb $*" >>"$FAKE/log"
while [ $# -gt 0 ]; do
    case $1 in
    --etcd-s3) s3=true ;;
    --etcd-s3=false) s3= ;;
    --etcd-snapshot-dir=*) dir=${1#*=} ;;
    *) break ;;
    esac
    shift
done
[ ! -e "$FAKE/down" ] || { echo "connection refused" >&2; exit 1; }
case $verb in
list)
    [ ! -e "$FAKE/headless" ] || exit 0
    echo "Name   Location   Size Created"
    for f in "$FAKE"/local/*; do [ ! -e "$f" ] || echo "${f##*/}   file://$f   5 2026"; done
    [ -z "$s3" ] || for f in "$FAKE"/bucket/*; do [ ! -e "$f" ] || echo "${f##*/}   s3://b/a folder/${f##*/}   5 2026"; done
    ;;
delete)
    [ -d "$dir" ] || { echo "no folder" >&2; exit 1; }
    [ -e "$FAKE/stuck" ] || rm -f "$dir/$1"
    [ -z "$s3" ] || [ -e "$FAKE/stuck" ] || rm -f "$FAKE/bucket/$1"
    ls "$dir" >"$FAKE/reported"
    ;;
esac
exit 0
`

type deletionHost struct {
	t   *testing.T
	dir string
}

func newDeletionHost(t *testing.T, files ...string) *deletionHost {
	t.Helper()
	h := &deletionHost{t, t.TempDir()}
	for _, dir := range []string{"local", "bucket"} {
		if err := os.Mkdir(filepath.Join(h.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append(files, "reported") {
		h.write(name, "x", 0o644)
	}
	h.write("k3s", snapshotCommands, 0o755)
	return h
}

func (h *deletionHost) write(name, content string, mode os.FileMode) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(content), mode); err != nil {
		h.t.Fatal(err)
	}
}

// files are those of the machine and of the bucket.
func (h *deletionHost) files() string {
	var names []string
	for _, dir := range []string{"local", "bucket"} {
		found, _ := filepath.Glob(filepath.Join(h.dir, dir, "*"))
		for _, path := range found {
			names = append(names, dir+"/"+filepath.Base(path))
		}
	}
	return strings.Join(names, " ")
}

func (h *deletionHost) location(file string) string {
	if name, is := strings.CutPrefix(file, "bucket/"); is {
		return "s3://b/a folder/" + name
	}
	return "file://" + filepath.Join(h.dir, file)
}

func (h *deletionHost) run(script, file string) (string, error) {
	h.t.Helper()
	command := exec.CommandContext(h.t.Context(), "/bin/sh", "-c", script, "delete-snapshot", filepath.Join(h.dir, "k3s"), filepath.Base(file),
		h.location(file), filepath.Join(h.dir, "state", "empty"))
	command.Env = append(os.Environ(), "FAKE="+h.dir, "TMPDIR="+h.dir)
	output, err := command.CombinedOutput()
	return string(output), err
}

// TestDeleteSnapshotScript: only what is at the location is deleted, not what has the same name elsewhere, and what is gone is no failure.
func TestDeleteSnapshotScript(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		file  string
		state string // a file of the fake
		left  string
		want  string // part of the output
		fails bool
	}{
		"a file": {files: []string{"local/a", "local/ab", "bucket/a"}, file: "local/a", left: "local/ab bucket/a", want: "is deleted"},
		"in the bucket": {files: []string{"local/b", "bucket/a", "bucket/ab"}, file: "bucket/a", left: "local/b bucket/ab",
			want: "is deleted"},
		"copy of a file": {files: []string{"local/a", "bucket/a"}, file: "bucket/a", left: "local/a", want: "is deleted"},
		"gone":           {files: []string{"local/ab", "bucket/a"}, file: "local/a", left: "local/ab bucket/a", want: "deleted before"},
		"gone in bucket": {files: []string{"local/a"}, file: "bucket/a", left: "local/a", want: "deleted before"},
		"another folder": {files: []string{"listed-nowhere"}, file: "listed-nowhere", want: "is there and not listed", fails: true},
		"not deleted":    {files: []string{"local/a"}, file: "local/a", state: "stuck", left: "local/a", want: "is still listed", fails: true},
		"not deleted copy": {files: []string{"local/a", "bucket/a"}, file: "bucket/a", state: "stuck", left: "local/a bucket/a",
			want: "still listed", fails: true},
		"no answer": {files: []string{"local/a"}, file: "local/a", state: "down", left: "local/a", want: "connection refused",
			fails: true},
		"another list": {files: []string{"local/a"}, file: "local/a", state: "headless", left: "local/a",
			want: "does not print the locations", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newDeletionHost(t, c.files...)
			if c.state != "" {
				h.write(c.state, "", 0o644)
			}
			out, err := h.run(deleteSnapshotSh, c.file)
			if (err != nil) != c.fails || !strings.Contains(out, c.want) || h.files() != c.left {
				t.Errorf("%v, left are %q: %s", err, h.files(), out)
			}
			h.checkReported(name)
		})
	}
}

// checkReported checks that the cluster lists the files of the machine, if anything was deleted.
func (h *deletionHost) checkReported(name string) {
	h.t.Helper()
	log, _ := os.ReadFile(filepath.Join(h.dir, "log"))
	reported, _ := os.ReadFile(filepath.Join(h.dir, "reported"))
	var have []string
	found, _ := filepath.Glob(filepath.Join(h.dir, "local", "*"))
	for _, path := range found {
		have = append(have, filepath.Base(path))
	}
	if strings.Contains(string(log), "delete ") && !slices.Equal(strings.Fields(string(reported)), have) {
		h.t.Errorf("%s: the cluster was reported %q instead of %q:\n%s", name, reported, have, log)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "state", "empty")); err == nil {
		h.t.Errorf("%s: the empty folder is left", name)
	}
}

// The script is killed before each of its lines and run again.
func TestDeleteSnapshotScriptKilled(t *testing.T) {
	files := []string{"local/a", "local/b", "bucket/a"}
	for file, left := range map[string]string{"bucket/a": "local/a local/b", "local/a": "local/b bucket/a"} {
		host := newDeletionHost(t, files...)
		lines := reached(t, deleteSnapshotSh, filepath.Join(host.dir, "lines"), func(script string) error {
			_, err := host.run(script, file)
			return err
		})
		if len(lines) < 12 {
			t.Errorf("it comes to the lines %d", lines)
		}
		for _, line := range lines {
			h := newDeletionHost(t, files...)
			var exit *exec.ExitError
			if out, err := h.run(insertBefore(deleteSnapshotSh, map[int]string{line: "kill -9 $$"}), file); !errors.As(err, &exit) ||
				exit.ExitCode() != -1 {
				t.Fatalf("killed at line %d: %v\n%s", line, err, out)
			}
			if out, err := h.run(deleteSnapshotSh, file); err != nil || h.files() != left {
				t.Errorf("killed at line %d: %v, left are %q\n%s", line, err, h.files(), out)
			}
			h.checkReported(file)
		}
	}
}

// TestDeleteInstruction: nothing restarts, and no credential is in the arguments or the environment.
func TestDeleteInstruction(t *testing.T) {
	op := &operationv1.ETCDSnapshotDelete{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	op.Status.MachineName = "m"
	op.Status.Snapshot = &operationv1.DeletedSnapshot{Name: "f", Location: "s3://backups/a folder/f"}
	for name, runtime := range map[string]string{"k3s-single-node": "k3s", "everything-set-rke2": "rke2"} {
		in := goldenCases(t)[name]
		plan, _ := Plan(in)
		with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: operationv1.StepDelete, Name: operation.TaskDeleteSnapshot})
		i := with.Instructions[len(with.Instructions)-1]
		want := []string{"-c", deleteSnapshotSh, "etcd-snapshot-delete", runtime, "f", "s3://backups/a folder/f",
			"/var/lib/rancher/capr/operations/u1/empty"}
		if err := with.Validate(); err != nil || i.Name != "etcd-snapshot-delete" || !slices.Equal(i.Args, want) || !i.SaveOutput ||
			i.TimeoutSeconds == 0 {
			t.Errorf("%s: %v, %+v", name, err, i)
		}
		if text := strings.Join(append(i.Args[2:], i.Env...), " "); strings.Contains(text, "key") {
			t.Errorf("%s: %s", name, text)
		}
		if len(with.Instructions) != len(plan.Instructions)+1 || !HasTask(with, op, operationv1.StepDelete) ||
			ImpactOf(plan, with) != ImpactNone || ImpactOf(with, plan) != ImpactNone {
			t.Errorf("%s: the impact is %s", name, ImpactOf(plan, with))
		}
	}
}

func TestSnapshotBucket(t *testing.T) {
	in := goldenCases(t)["k3s-single-node"]
	if got := SnapshotBucket(in.Cluster, in.Machine); got != (rkev1.ETCDSnapshotS3{}) {
		t.Errorf("got %+v", got)
	}
	in.Cluster.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Endpoint: "s3.example.com", Bucket: "b", Folder: "f"}}
	if got, want := SnapshotBucket(in.Cluster, in.Machine), (rkev1.ETCDSnapshotS3{Endpoint: "s3.example.com", Bucket: "b",
		Folder: "f"}); got != want {
		t.Errorf("got %+v", got)
	}
}
