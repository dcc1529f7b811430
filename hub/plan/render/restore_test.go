package render

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

func restoring(target string, s3 *operationv1.RestoredSnapshotS3) *operationv1.ETCDSnapshotRestore {
	op := &operationv1.ETCDSnapshotRestore{}
	op.UID, op.Status.MachineName = "uid", target
	op.Status.Snapshot = &operationv1.RestoredSnapshot{Name: "s", Path: "/snapshots/s", Size: 7, S3: s3}
	if s3 != nil {
		op.Status.Snapshot.Path = ""
	}
	return op
}

func instructionNames(plan plans.Plan) (names []string) {
	for _, i := range plan.Instructions {
		names = append(names, i.Name)
	}
	return names
}

func instruction(t *testing.T, plan plans.Plan, name string) plans.Instruction {
	t.Helper()
	for _, i := range plan.Instructions {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("no instruction %s among %v", name, instructionNames(plan))
	return plans.Instruction{}
}

// The plans of a restore: what they run, and what a machine goes through when it gets one.
func TestRestorePlans(t *testing.T) {
	for _, version := range []string{"v1.36.3+k3s1", "v1.36.3+rke2r1"} {
		in := machineOf(t, version, "a", "ec")
		in.Machine.Init = true
		wanted, _ := Plan(in)
		with := func(base plans.Plan, machine string, task operation.Task) plans.Plan {
			m := in.Machine
			m.Name = machine
			plan := WithTask(in.Cluster, m, base, restoring("a", nil), task)
			if err := plan.Validate(); err != nil {
				t.Errorf("%s: %v", task.Name, err)
			}
			if !HasTask(plan, restoring("a", nil), task.Step) {
				t.Errorf("%s: the plan does not have the task", task.Name)
			}
			return plan
		}
		check := with(wanted, "a", operation.Task{Step: "Preflight", Name: operation.TaskCheckSnapshot, Apart: true})
		if got := instructionNames(check); !slices.Equal(got, []string{InstallInstruction, "etcd-snapshot-check"}) || Stopped(check) ||
			check.Instructions[0].Image != "" {
			t.Errorf("check: %v, %+v", got, check.Instructions[0])
		}
		if there, back := ImpactOf(wanted, check), ImpactOf(check, wanted); there != ImpactNone || back != ImpactNone {
			t.Errorf("the check has the impact %s, what follows %s", there, back)
		}
		unapplied := in.Machine
		unapplied.Unapplied = true
		failed := WithTask(in.Cluster, unapplied, wanted, restoring("a", nil),
			operation.Task{Step: "Preflight", Name: operation.TaskPing, Apart: true})
		if got := instructionNames(failed); !slices.Equal(got, []string{InstallInstruction, "ping"}) || ImpactOf(failed, wanted) == ImpactNone {
			t.Errorf("a plan that was not applied before the check: %v, and what follows restarts nothing", got)
		}
		stop := with(check, "b", operation.Task{Step: "Shutdown", Name: operation.TaskStop, Apart: true})
		if got := instructionNames(stop); !slices.Equal(got, []string{"stop"}) || !Stopped(stop) || ImpactOf(stop, wanted) != ImpactDrain {
			t.Errorf("stop: %v", got)
		}
		if args := stop.Instructions[0].Args; args[len(args)-1] != "leave" {
			t.Errorf("another server stops with %v", args[2:])
		}
		own := with(check, "a", operation.Task{Step: "Shutdown", Name: operation.TaskStop, Apart: true})
		if args := own.Instructions[0].Args; args[len(args)-1] != "keep" {
			t.Errorf("the restored server stops with %v", args[2:])
		}
		// A second restore keeps the mark of the first until it stops the machine itself.
		again := with(stop, "b", operation.Task{Step: "Other", Name: operation.TaskPing, Apart: true})
		if got := instructionNames(again); !slices.Equal(got, []string{"stopped", "ping"}) || !Stopped(again) {
			t.Errorf("a check of a stopped machine: %v", got)
		}
		restore := with(wanted, "a", operation.Task{Step: "Restore", Name: operation.TaskRestoreSnapshot, Rendered: true})
		install := instruction(t, restore, InstallInstruction)
		if got := instructionNames(restore); got[len(got)-1] != "etcd-snapshot-restore" || !Stopped(restore) ||
			!slices.ContainsFunc(install.Env, func(v string) bool { return strings.HasSuffix(v, "_SKIP_START=true") }) {
			t.Errorf("restore: %v, %v", got, install.Env)
		}
		start := with(wanted, "b", operation.Task{Step: "InitialRestartCluster", Name: operation.TaskStart, Rendered: true})
		if got := instructionNames(start); got[0] != "forget" || got[1] != InstallInstruction || got[len(got)-1] != "start" || Stopped(start) {
			t.Errorf("start: %v", got)
		}
		if ImpactOf(start, wanted) != ImpactNone || ImpactOf(restore, start) != ImpactNone || ImpactOf(stop, start) != ImpactDrain {
			t.Error("the impact of the start is not what it was")
		}
		first := with(wanted, "a", operation.Task{Step: "PostRestorePodCleanup", Name: operation.TaskStart, Rendered: true})
		if got := instructionNames(first); slices.Contains(got, "forget") {
			t.Errorf("the restored server forgets its data: %v", got)
		}
		if got := instructionNames(WithoutTask(start)); slices.Contains(got, "forget") || slices.Contains(got, "start") {
			t.Errorf("after the operation: %v", got)
		}
	}
}

// A machine that was never given a plan is given nothing of the cluster for the check.
func TestRestoreChecksNewMachine(t *testing.T) {
	in := machineOf(t, "v1.36.3+k3s1", "a", "ec")
	plan := WithTask(in.Cluster, in.Machine, plans.Plan{}, restoring("a", nil),
		operation.Task{Step: "Preflight", Name: operation.TaskCheckSnapshot, Apart: true})
	if len(plan.Files) > 0 || !slices.Equal(instructionNames(plan), []string{"etcd-snapshot-check"}) || plan.Validate() != nil {
		t.Errorf("got %+v", plan)
	}
}

// Credentials of a bucket are in the configuration file alone, which others cannot read.
// A worker with Windows was not stopped. It gets the restored configuration from what is rendered, and the installer restarts it for that.
func TestRestoreWindowsWorker(t *testing.T) {
	in := machineOf(t, rke2, "w", "w")
	in.Machine.OS = "windows"
	wanted, _ := Plan(in)
	plan := WithTask(in.Cluster, in.Machine, wanted, restoring("a", nil), operation.Task{Name: operation.TaskStart, Step: "s", Rendered: true})
	if err := plan.Validate(); err != nil {
		t.Error(err)
	}
	diff := cmp.Diff(append(instructionNames(wanted), string(operation.TaskStart)), instructionNames(plan))
	if start := instruction(t, plan, string(operation.TaskStart)); diff != "" || start.Command != "powershell.exe" ||
		ImpactOf(wanted, plan) != ImpactNone {
		t.Errorf("%s has the impact %s (-want +got):\n%s", start.Command, ImpactOf(wanted, plan), diff)
	}
}

func TestRestoreFromS3(t *testing.T) {
	in := everything(t, "v1.36.3+k3s1")
	in.Machine.Init = true
	wanted, problems := Plan(in)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	op := restoring(in.Machine.Name, &operationv1.RestoredSnapshotS3{Bucket: "backups", Folder: "a b", Region: "eu-1"})
	plan := WithTask(in.Cluster, in.Machine, wanted, op, operation.Task{Step: "Restore", Name: operation.TaskRestoreSnapshot, Rendered: true})
	got := instruction(t, plan, "etcd-snapshot-restore").Args[6:]
	want := []string{"--cluster-reset-restore-path=s", "--etcd-s3", "--etcd-s3-bucket=backups", "--etcd-s3-folder=a b",
		"--etcd-s3-region=eu-1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	op.Status.Snapshot.S3.Folder = operationv1.BucketRoot
	root := WithTask(in.Cluster, in.Machine, wanted, op, operation.Task{Step: "Restore", Name: operation.TaskRestoreSnapshot, Rendered: true})
	if got := instruction(t, root, "etcd-snapshot-restore").Args; !slices.Contains(got, "--etcd-s3-folder=") {
		t.Errorf("a snapshot in no folder: got %q", got)
	}
	for _, f := range plan.Files {
		if mode, err := f.Mode(); strings.HasSuffix(f.Path, "50-rancher.yaml") && (err != nil || mode != 0o600) {
			t.Errorf("%s has the mode %o, %v", f.Path, mode, err)
		}
	}
}

// host is a folder with programs that a script finds before all others.
type host struct {
	t         *testing.T
	bin, data string
}

func newHost(t *testing.T) *host {
	h := &host{t: t, bin: filepath.Join(t.TempDir(), "bin"), data: filepath.Join(t.TempDir(), "k3s")}
	h.write(filepath.Join(h.bin, "systemctl"), "#!/bin/sh\necho systemctl \"$@\" >>\"$LOG\"\ncase \"$1 $2\" in\n\"cat k3s-agent.service\") exit 1 ;;\n"+
		"is-active*) echo active ;;\nesac\n")
	h.write(filepath.Join(h.bin, "k3s-killall.sh"), "#!/bin/sh\necho killall >>\"$LOG\"\nexit 1\n")
	h.write(filepath.Join(h.bin, "k3s"), "#!/bin/sh\necho k3s \"$@\" >>\"$LOG\"\n")
	return h
}

func (h *host) write(path, content string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// run runs a script and returns its output and what was called.
func (h *host) run(script string, args ...string) (out, log string, _ error) {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "log")
	cmd := exec.CommandContext(h.t.Context(), "/bin/sh", append([]string{"-c", script, "script"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+h.bin+":"+os.Getenv("PATH"), "LOG="+file)
	output, err := cmd.CombinedOutput()
	called, _ := os.ReadFile(file)
	return string(output), string(called), err
}

// entries are the names below the data directory that match, without the time at their end.
func (h *host) entries(pattern string) (names []string) {
	found, _ := filepath.Glob(filepath.Join(h.data, pattern))
	for _, f := range found {
		names = append(names, strings.TrimRight(filepath.Base(f), "0123456789"))
	}
	return names
}

func TestCheckScript(t *testing.T) {
	h := newHost(t)
	file := filepath.Join(t.TempDir(), "a snapshot")
	h.write(file, "seven77")
	sum, other := hexOf("seven77"), hexOf("seven78")
	for _, c := range []struct{ file, size, sum, want, says string }{
		{file, "7", "", "", "no checksum of it is known"}, {file, "0", sum, "", "its SHA-256 is the one"}, {"", "7", "", "", "checked"},
		{file, "8", sum, "instead of 8", ""}, {file + "x", "7", "", "does not exist", ""}, {filepath.Dir(file), "0", "", "does not exist", ""},
		{"", "9000000000000000", "", "KiB free", ""}, {file, "7", other, "is damaged: its SHA-256 is " + sum + ", and was " + other, file},
		{file, "7", other, "Restore another snapshot", ""},
	} {
		out, _, err := h.run(restoreCheckSh, c.file, c.size, h.data, c.sum, "s")
		if (err == nil) != (c.want == "") || !strings.Contains(out, c.want) || !strings.Contains(out, c.says) {
			t.Errorf("%+v: %v: %s", c, err, out)
		}
	}
}

// TestCheckScriptFolder: what would keep the restore from succeeding is found before anything is stopped. A compressed snapshot needs more
// space, also one in a bucket; and the folder of etcd must be one that can be renamed.
func TestCheckScriptFolder(t *testing.T) {
	h := newHost(t)
	h.write(filepath.Join(h.bin, "df"), "#!/bin/sh\necho header\necho disk 0 0 100000 0% /\n")
	for name, want := range map[string]string{"s": "", "s.zip": "has 100000 KiB free"} {
		if out, _, err := h.run(restoreCheckSh, "", "10485760", h.data, "", name); (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	h.write(filepath.Join(h.data, "server/db/etcd/name"), "a")
	check := func(what, want string) {
		t.Helper()
		if out, _, err := h.run(restoreCheckSh, "", "7", h.data, "", "s"); (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
	check("a folder", "")
	h.write(filepath.Join(h.bin, "mountpoint"), "#!/bin/sh\n[ \"$*\" = \"-q "+h.data+"/server/db/etcd\" ]\n")
	check("a disk", "server/db/etcd is a mount point")
	if err := os.Rename(filepath.Join(h.data, "server/db/etcd"), filepath.Join(h.data, "disk")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../disk", filepath.Join(h.data, "server/db/etcd")); err != nil {
		t.Fatal(err)
	}
	check("a link to a disk", "")
}

// TestCheckScriptDisk: where etcd has a disk of its own, at server/db, the space of that one counts. On the disk of the data directory,
// there may be too little for a restore that is possible, or enough for one that would fail after all machines were stopped.
func TestCheckScriptDisk(t *testing.T) {
	h := newHost(t)
	disk := filepath.Join(h.data, "server/db")
	h.write(filepath.Join(disk, "etcd/name"), "a")
	for name, c := range map[string]struct{ data, disk, want string }{
		"space on the disk of etcd":           {"0", "100000", ""},
		"space in the data directory instead": {"100000", "0", disk + " has 0 KiB free"},
	} {
		h.write(filepath.Join(h.bin, "df"), "#!/bin/sh\nfree="+c.data+"\n[ \"$2\" != \""+disk+"\" ] || free="+c.disk+
			"\necho header\necho disk 0 0 $free 0% /\n")
		out, _, err := h.run(restoreCheckSh, "", "7", h.data, "", "s")
		if (err == nil) != (c.want == "") || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func TestStopScript(t *testing.T) {
	h := newHost(t)
	etcd := filepath.Join(h.data, "server/db/etcd")
	h.write(filepath.Join(etcd, "name"), "a")
	for _, keep := range []string{"keep", "leave"} {
		out, called, err := h.run(restoreStopSh, "k3s", h.data, keep)
		if err != nil || !strings.Contains(called, "systemctl disable --quiet k3s.service\nsystemctl cat k3s-agent.service\nkillall\nsystemctl stop k3s.service\n") {
			t.Errorf("%v: %s\n%s", err, out, called)
		}
		if _, err := os.Stat(filepath.Join(etcd, "tombstone")); (err == nil) != (keep == "leave") {
			t.Errorf("%s: the tombstone: %v", keep, err)
		}
	}
	// A worker, and a machine on which nothing is installed.
	empty := newHost(t)
	if out, _, err := empty.run(restoreStopSh, "k3s", empty.data, "leave"); err != nil || len(empty.entries("*")) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestResetScript(t *testing.T) {
	h := newHost(t)
	for _, f := range []string{"server/tls/ca", "server/cred/passwd", "server/db/etcd/tombstone", "server/db/reset-flag"} {
		h.write(filepath.Join(h.data, f), "x")
	}
	folder := filepath.Join(t.TempDir(), "snapshots", "of etcd")
	out, called, err := h.run(restoreResetSh, "k3s", h.data, folder, "--cluster-reset-restore-path=/a b")
	want := "systemctl stop k3s.service\nk3s server --cluster-reset --etcd-disable-snapshots=false --cluster-reset-restore-path=/a b\n"
	if err != nil || called != want {
		t.Errorf("%v: %s\n%s", err, out, called)
	}
	if got := append(h.entries("server/*"), h.entries("server/db/*")...); !slices.Equal(got,
		[]string{"cred-old-", "db", "tls-old-", "etcd"}) ||
		len(h.entries("server/db/etcd/*")) > 0 {
		t.Errorf("the folder has %v", got)
	}
	// A snapshot in a bucket is downloaded to the folder of snapshots, which a new machine does not have where etcd-snapshot-dir is set.
	if info, err := os.Stat(folder); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of snapshots: %v, %v", info, err)
	}
}

// TestResetScriptArchive: k3s and RKE2 look for an archive below the folder of snapshots, also where its path is whole, as that of one that
// they have downloaded is. Nothing of that stays in the folder, where it would be listed as a snapshot.
func TestResetScriptArchive(t *testing.T) {
	for name, given := range map[string]func(folder, other string) string{
		"in the folder": func(folder, _ string) string { return folder + "/a b.zip" },
		"elsewhere":     func(_, other string) string { return other + "/a b.zip" },
		"in a bucket":   func(_, _ string) string { return "a b.zip" },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			folder, other := filepath.Join(h.data, "server/db/snap shots"), t.TempDir()
			file := given(folder, other)
			whole := file
			if !filepath.IsAbs(file) {
				whole = filepath.Join(folder, file)
			}
			h.write(whole, "zip")
			h.write(filepath.Join(h.bin, "k3s"), "#!/bin/sh\ncat '"+folder+whole+"' >>\"$LOG\" && exit 3\n")
			out, called, err := h.run(restoreResetSh, "k3s", h.data, folder, "--cluster-reset-restore-path="+file, "--etcd-s3=false")
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 3 || called != "systemctl stop k3s.service\nzip" {
				t.Errorf("%v: %s\n%s", err, out, called)
			}
			if left := h.entries("server/db/snap shots/*"); len(left) > 1 || len(left) == 1 && left[0] != "a b.zip" {
				t.Errorf("the folder has %v", left)
			}
		})
	}
}

// A server forgets its data once for each restore: when the same plan runs again, it may have joined.
func TestRejoinScript(t *testing.T) {
	h := newHost(t)
	state := filepath.Join(t.TempDir(), "capr", "restore")
	join := func(id, role string) {
		t.Helper()
		h.write(filepath.Join(h.data, "server/db/etcd/name"), id)
		h.write(filepath.Join(h.data, "server/tls/ca"), id)
		if out, _, err := h.run(restoreRejoinSh, id, state, "k3s", h.data, role); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	join("1", "server")
	if got := append(h.entries("server/*"), h.entries("server/db/*")...); !slices.Equal(got, []string{"db", "tls-old-", "etcd-old-"}) {
		t.Errorf("the folder has %v", got)
	}
	join("1", "server")
	if got := h.entries("server/db/etc[d]"); len(got) != 1 {
		t.Error("the data of a server that has joined was moved away")
	}
	other := newHost(t)
	h.data = other.data
	join("2", "worker")
	if got := h.entries("server/db/*"); !slices.Equal(got, []string{"etcd"}) {
		t.Errorf("a worker has %v", got)
	}
}

func TestWaitScript(t *testing.T) {
	h := newHost(t)
	out, called, err := h.run(restoreWaitSh, "k3s.service", "3")
	if err != nil || !strings.HasPrefix(called, "systemctl enable --quiet k3s.service\nsystemctl --no-block start k3s.service\n") {
		t.Errorf("%v: %s\n%s", err, out, called)
	}
	h.write(filepath.Join(h.bin, "systemctl"), "#!/bin/sh\n[ \"$1\" != is-active ] || echo activating\n")
	if out, _, err = h.run(restoreWaitSh, "k3s.service", "0"); err == nil || !strings.Contains(out, "journalctl -u k3s.service") {
		t.Errorf("%v: %s", err, out)
	}
}
