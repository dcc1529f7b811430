package render

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
)

// snapshotFile is a file as etcd sends a snapshot: pages of a bbolt database, and their hash.
func snapshotFile() []byte {
	pages := make([]byte, 8192)
	copy(pages[16:], "\xed\xda\x0c\xed")
	sum := sha256.Sum256(pages)
	return append(pages, sum[:]...)
}

// runtimeStub stands for k3s: it saves the content of FILE under a name, and deletes by name.
const runtimeStub = `#!/bin/sh
case $2 in
save) [ -z "$3" ] || cp "$CONTENT" "$FOLDER/on-demand-node-1"; [ -z "$TWO" ] || cp "$TWO" "$FOLDER/on-demand-node-1.zip" ;;
delete) [ -z "$ASKED" ] || echo "$*" >>"$ASKED"; [ -n "$ASKED" ] || rm -f "$FOLDER/$3"; echo "deleted $3" ;;
list) echo "Name            Location"; echo "on-demand-node-1 file://$FOLDER/on-demand-node-1"; echo "on-demand-node-$UPLOADED s3://b/f" ;;
esac
`

// TestSaveSnapshotScript: a snapshot counts only if its file is whole.
func TestSaveSnapshotScript(t *testing.T) {
	whole := snapshotFile()
	flipped := bytes.Clone(whole)
	flipped[5000] ^= 1
	foreign := bytes.Clone(whole[:8192])
	foreign[16] = 0
	sum := sha256.Sum256(foreign)
	foreign = append(foreign, sum[:]...)
	for name, test := range map[string]struct {
		content []byte
		zip     []byte
		bucket  string // which file is uploaded; empty for no bucket
		want    string // part of the output
		fails   bool
		stays   bool // although it fails
	}{
		"whole":          {content: whole, want: "8224 bytes, checked"},
		"cut off":        {content: whole[:8192], want: "its end is missing", fails: true},
		"cut off before": {content: whole[:4096], want: "its end is missing", fails: true},
		"a bit flipped":  {content: flipped, want: "its hash is another one", fails: true},
		"another file":   {content: foreign, want: "it is no etcd database", fails: true},
		"empty":          {content: []byte{}, want: "its end is missing", fails: true},
		"no zip":         {zip: []byte("not a zip archive"), want: "it is no zip archive", fails: true},
		"uploaded":       {content: whole, bucket: "1", want: "8224 bytes, checked"},
		"not uploaded":   {content: whole, bucket: "11", want: "was not uploaded", fails: true, stays: true},
		"nothing saved":  {want: "there is no new file", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folder := filepath.Join(dir, "snapshots of etcd")
			write := func(path string, content []byte, mode os.FileMode) string {
				t.Helper()
				if err := os.WriteFile(path, content, mode); err != nil {
					t.Fatal(err)
				}
				return path
			}
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			earlier := write(filepath.Join(folder, "on-demand-node-0"), []byte("damaged long ago"), 0o600)
			runtime := write(filepath.Join(dir, "k3s"), []byte(runtimeStub), 0o700)
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", saveSnapshotSh, "save-snapshot", runtime, folder, "on-demand",
				strconv.FormatBool(test.bucket != ""), "")
			cmd.Env = append(os.Environ(), "FOLDER="+folder, "CONTENT=", "TWO=", "UPLOADED="+test.bucket)
			if test.content != nil {
				cmd.Args[len(cmd.Args)-1] = "--name"
				cmd.Env = append(cmd.Env, "CONTENT="+write(filepath.Join(dir, "content"), test.content, 0o600))
			}
			if test.zip != nil {
				cmd.Env = append(cmd.Env, "TWO="+write(filepath.Join(dir, "zip"), test.zip, 0o600))
			}
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails || !strings.Contains(string(out), test.want) {
				t.Errorf("%v: %s", err, out)
			}
			if !test.fails && !strings.Contains(string(out), "sha256 "+hexOf(string(test.content))+" "+folder+"/on-demand-node-1\n") {
				t.Errorf("the checksum is missing: %s", out)
			}
			left, _ := filepath.Glob(filepath.Join(folder, "on-demand-node-1*"))
			if len(left) > 0 != (!test.fails || test.stays) {
				t.Errorf("left are %v", left)
			}
			if _, err := os.Stat(earlier); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSaveSnapshotWaits: a server that saves a snapshot on its schedule refuses another one until it has ended, and does not say so. What
// it says of other errors is final.
func TestSaveSnapshotWaits(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stub, content := write("stub", runtimeStub), write("content", string(snapshotFile()))
	write("sleep", "#!/bin/sh\necho slept \"$1\"\n")
	runtime := write("k3s", "#!/bin/sh\nif [ $2 = save ] && [ \"$(wc -l <\"$TRIES\")\" -lt \"$BUSY\" ]; then\n"+
		"echo x >>\"$TRIES\"\necho \"$SAYS\" >&2\nexit 1\nfi\nexec \"$STUB\" \"$@\"\n")
	const busy = "Internal error occurred: etcd-snapshot error ID 12345"
	for name, tc := range map[string]struct {
		busy, says, want string
		fails            bool
	}{
		"for a while":   {busy: "2", says: busy, want: "8224 bytes, checked"},
		"for too long":  {busy: "99", says: busy, want: busy, fails: true},
		"another error": {busy: "1", says: "failed to initialize S3 client", want: "failed to initialize S3 client", fails: true},
	} {
		folder := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", saveSnapshotSh, "save-snapshot", runtime, folder, "on-demand", "false",
			"--name")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "STUB="+stub, "TRIES="+write("tries", ""), "BUSY="+tc.busy,
			"SAYS="+tc.says, "FOLDER="+folder, "CONTENT="+content, "TWO=", "UPLOADED=", "ASKED=")
		raw, err := cmd.CombinedOutput()
		out := string(raw)
		if (err != nil) != tc.fails || !strings.Contains(out, tc.want) || strings.Contains(out, "slept 20") != (tc.says == busy) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestSaveSnapshotElsewhere: a server lists the files of the folder that it was asked for last. After a snapshot in another one, it is
// asked to list those of its own again; one that is damaged is in that other folder, where the server deletes nothing.
func TestSaveSnapshotElsewhere(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	runtime, asked := write("k3s", []byte(runtimeStub)), filepath.Join(dir, "asked")
	for name, content := range map[string][]byte{"whole": snapshotFile(), "cut off": snapshotFile()[:8192]} {
		_ = os.Remove(asked)
		folder := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", saveSnapshotSh, "save-snapshot", runtime, folder, "on-demand", "false",
			"--etcd-snapshot-dir", folder)
		cmd.Env = append(os.Environ(), "FOLDER="+folder, "CONTENT="+write("content", content), "TWO=", "UPLOADED=", "ASKED="+asked)
		out, err := cmd.CombinedOutput()
		got, _ := os.ReadFile(asked)
		if (err == nil) != (name == "whole") || !strings.HasPrefix(string(got), "etcd-snapshot delete --etcd-s3=false on-demand.none\n") {
			t.Errorf("%s: %v: %s\n%s", name, err, out, got)
		}
		if left, _ := filepath.Glob(folder + "/*"); len(left) > 0 != (name == "whole") {
			t.Errorf("%s: left are %v", name, left)
		}
	}
}

// TestSnapshotServer: the command for snapshots asks 127.0.0.1 at the port of the distribution, whatever the server's configuration says.
func TestSnapshotServer(t *testing.T) {
	for name, tc := range map[string]struct{ version, config, want string }{
		"the default":          {k3s, `{}`, ""},
		"the default, written": {k3s, `{"https-listen-port": 6443, "bind-address": "::"}`, ""},
		"another port":         {k3s, `{"https-listen-port": 7443}`, "https://127.0.0.1:7443"},
		"another port, IPv6":   {k3s, `{"https-listen-port": 7443, "service-cidr": "fd00::/112"}`, "https://[::1]:7443"},
		"IPv6":                 {k3s, `{"service-cidr": "fd00::/112"}`, ""},
		"one address":          {k3s, `{"bind-address": "10.0.0.5"}`, "https://10.0.0.5:6443"},
		"one address, RKE2":    {rke2, `{"bind-address": "fd00::5"}`, "https://[fd00::5]:9345"},
		"a port of k3s":        {rke2, `{"https-listen-port": 7443}`, ""},
		"a release before":     {"v1.30.4+k3s1", `{"https-listen-port": 7443}`, ""},
	} {
		in := machineOf(t, tc.version, "a", "eci")
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		plan, _ := Plan(in)
		save, deletion := &operationv1.ETCDSnapshotSave{}, &operationv1.ETCDSnapshotDelete{}
		save.UID, deletion.UID = "uid", "uid"
		for task, op := range map[operation.TaskName]operationv1.Operation{
			operation.TaskSaveSnapshot: save, operation.TaskDeleteSnapshot: deletion, operation.TaskCheckSnapshot: restoring("a", nil),
		} {
			with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: "s", Name: task})
			server := ""
			for _, v := range instruction(t, with, string(task)).Env {
				if url, is := strings.CutPrefix(v, "SNAPSHOT_SERVER="); is {
					server = url
				}
			}
			if server != tc.want {
				t.Errorf("%s: %s asks %q, want %q", name, task, server, tc.want)
			}
		}
	}
}

// TestScriptsNameSnapshotServer: each command for snapshots is given the server.
func TestScriptsNameSnapshotServer(t *testing.T) {
	const server = "https://[::1]:7443"
	h, folder, empty := newHost(t), t.TempDir(), filepath.Join(t.TempDir(), "empty")
	content := filepath.Join(t.TempDir(), "content")
	h.write(content, string(snapshotFile()))
	h.write(filepath.Join(h.bin, "k3s"), `#!/bin/sh
echo "$2 $3" >>"$LOG"
case $2 in
save) cp "$CONTENT" "$FOLDER/on-demand-node-1" ;;
list) echo "Name   Location   Size"; echo "on-demand-node-1 s3://b/on-demand-node-1 7"; [ ! -e "$LISTED" ] || echo "s s3://b/s 7" ;;
delete) rm -f "$LISTED" ;;
esac
`)
	t.Setenv("SNAPSHOT_SERVER", server)
	t.Setenv("CONTENT", content)
	t.Setenv("FOLDER", folder)
	for name, tc := range map[string]struct {
		script string
		args   []string
		want   []string
	}{
		"save": {saveSnapshotSh, []string{"k3s", folder, "on-demand", "true", "--etcd-snapshot-dir", folder},
			[]string{"save", "delete", "list"}},
		"delete": {deleteSnapshotSh, []string{"k3s", "s", "s3://b/s", empty}, []string{"list", "delete", "list"}},
		"check":  {restoreCheckSh, []string{"", "7", h.data, "", "s", "k3s", "--etcd-s3"}, []string{"list"}},
	} {
		listed := filepath.Join(t.TempDir(), "listed")
		h.write(listed, "")
		t.Setenv("LISTED", listed)
		out, called, err := h.run(tc.script, tc.args...)
		want := ""
		for _, verb := range tc.want {
			want += verb + " --etcd-server=" + server + "\n"
		}
		if err != nil || called != want {
			t.Errorf("%s: %v: %s\ncalled:\n%s", name, err, out, called)
		}
	}
}

// What a machine reports of a saved snapshot is read, and nothing else.
func TestSavedSnapshots(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for text, want := range map[string]map[string]string{
		"snapshot /s/x: 7 bytes, checked\nsha256 " + a + " /s/x\n":              {"x": a},
		"sha256 " + a + " /s/x\r\nsha256 " + b + " /s/y.zip":                    {"x": a, "y.zip": b},
		"sha256 " + a[1:] + " /s/x\nsha256 " + strings.ToUpper(a) + " /s/x\n":   {},
		"sha256 " + a + " s/x\nsha256 " + a + " /s/x y\nsha256 " + a + " /s/\"": {},
		"": {},
	} {
		if got := SavedSnapshots(map[string][]byte{"etcd-snapshot-save": []byte(text),
			"install": []byte("sha256 " + b + " /s/z")}); !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	if got := SavedSnapshots(nil); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}
