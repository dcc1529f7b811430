package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/doctor"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/plans"
)

// unpacked returns the files of a bundle.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("got %v, %v", info, err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "system-agent/")] = string(text)
	}
}

// Root must not replace a device, nor the link /dev/stdout.
func TestSupportBundleIsAFile(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "stdout")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{os.DevNull, link, dir} {
		if path, err := bundlePath(file); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: got %s, %v", file, path, err)
		}
	}
	if path, err := bundlePath(filepath.Join(dir, "bundle.tar.gz")); err != nil || path != filepath.Join(dir, "bundle.tar.gz") {
		t.Errorf("got %s, %v", path, err)
	}
}

// TestSupportBundle shows that S4 cannot happen: every place where a secret may be has one, and none is in the bundle.
func TestSupportBundle(t *testing.T) {
	m := newFakeMachine(t)
	var secrets []string
	secret := func(where string) string {
		secrets = append(secrets, "hunter2-"+where)
		return "hunter2-" + where
	}
	m.write("config.yaml",
		fmt.Sprintf("remoteEnabled: true\nconnectionInfoFile: %[1]s/connection.json\nworkDirectory: %[1]s/var/work\nsocket: %[2]s\n"+
			"unknownKey: %[3]s\n",
			m.dir, m.socket, secret("config")))
	kubeconfig := fmt.Sprintf(`{"current-context":"a","clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"a","user":{"token":%q}}],
"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}]}`, secret("token"))
	connection, err := json.Marshal(config.Connection{KubeConfig: kubeconfig, Namespace: "fleet-default", SecretName: "plan-secret"})
	if err != nil {
		t.Fatal(err)
	}
	m.write("connection.json", string(connection))
	content, script := secret("content"), secret("script")
	file := filepath.Join(m.dir, "etc/file")
	m.write("etc/file", secret("on-disk"))
	raw, err := plans.Plan{
		Files: []plans.File{{Path: file, Content: base64.StdEncoding.EncodeToString([]byte(content))}},
		Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{Name: "install", Image: "rancher/x:v1", Command: "sh",
			Args: []string{"-c", secret("argument")},
			Env:  []string{"TOKEN=" + secret("env"), secret("odd-env")}, Script: script}}},
		PeriodicInstructions: []plans.PeriodicInstruction{{CommonInstruction: plans.CommonInstruction{Name: "p",
			Env: []string{"A=" + secret("periodic")}}}},
		Probes: map[string]plans.Probe{"p": {HTTPGet: plans.HTTPGetAction{URL: "http://u:" + secret("probe") + "@127.0.0.1/"}}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.agent.plan = raw
	lines := `{"kind":"begin","time":"2026-11-21T03:00:00Z","begin":{"checksum":"abc","attempt":1},"plan":"` +
		base64.StdEncoding.EncodeToString(raw) + `"}
{"kind":"done","index":0,"name":"install","output":"` + base64.StdEncoding.EncodeToString([]byte(secret("output"))) + `","later":"` + secret("unknown-key") + `"}
{"kind":"end","message":"exit code 4; last output: ` + secret("last-words") + `"}
half a line ` + secret("half-line")
	m.write("var/state/journal", lines)
	m.write("var/state/runs/abc-1-0/stdout.log", "the log says "+secret("log"))
	m.write("var/state/runs/abc-1-0/spec.json", secret("spec"))
	t.Setenv("HTTPS_PROXY", "http://user:"+secret("proxy")+"@127.0.0.1:1")
	t.Setenv("SOME_PASSWORD", secret("own-env"))
	started := time.Now().Add(-time.Minute)
	m.agent.attempts = []journal.Attempt{{Source: "hub", Checksum: "abc", Number: 1, Started: started, Ended: started,
		Instructions: []journal.InstructionRun{{Name: "install", RunDir: m.dir + "/var/state/runs/abc-1-0"}}}}
	m.serve()

	path := filepath.Join(m.dir, "bundle.tar.gz")
	m.want(0, "bundle.tar.gz (", "support-bundle", "-f", path)
	files := unpacked(t, path)
	check := func(allowed ...string) {
		t.Helper()
		for name, text := range files {
			for _, secret := range secrets {
				encoded := base64.StdEncoding.EncodeToString([]byte(secret))
				if !slices.Contains(allowed, secret) && (strings.Contains(text, secret) || strings.Contains(text, encoded)) {
					t.Errorf("%s holds %s:\n%s", name, secret, text)
				}
			}
		}
	}
	check()
	for name, want := range map[string]string{
		"config.json": "connectionInfoFile", "connection.json": `"secretName": "plan-secret"`, "status.json": `"running": true`,
		"history.json": `"attempt": 1`,
		"doctor.txt":   "PROBLEM", "doctor.json": `"worst": "problem"`, "plans/hub.json": "rancher/x:v1",
		"plans/hub-files.json": `"contentChanges": true`,
		"journals/hub.jsonl":   `"name":"install"`, "versions.txt": "system-agent dev", "machine/version": "Linux",
		"environment.txt": "SOME_PASSWORD=(hidden",
	} {
		if name == "environment.txt" && !strings.Contains(files[name], "SOME_PASSWORD") {
			want = "# " // the agent of this test is this process, whose environment was read when it started
		}
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, files[name])
		}
	}

	m.want(0, "Warning: the bundle contains outputs of instructions", "support-bundle", "-f", path, "--with-logs")
	files = unpacked(t, path)
	check("hunter2-log")
	if files["logs/abc-1-0/stdout.log"] != "the log says hunter2-log" {
		t.Errorf("got %v", slices.Sorted(maps.Keys(files)))
	}
}

// Marks of equal values are equal within a bundle only.
func TestRedaction(t *testing.T) {
	r := newRedactor()
	if a, again := r.mark("a"), r.mark("a"); a != again || a == r.mark("b") || a == newRedactor().mark("a") {
		t.Error("marks of equal values differ, or marks of different values are equal")
	}
	plan := plans.Plan{Files: []plans.File{{Path: "/a", Content: "!"}},
		Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{Env: []string{"A=b"}}}}}
	_ = r.plan(plan, visibleFields{})
	if plan.Files[0].Content != "!" || plan.Instructions[0].Env[0] != "A=b" {
		t.Error("the plan itself was changed")
	}
	for text, want := range map[string]string{"http://a:b@c/d": "http://hidden@c/d", "http://c": "http://c",
		"http://a:b@c:x%zz": "(hidden: not a URL, may contain a password)", "a:b@c:3128": "(hidden: not a URL, may contain a password)",
		"a@c:3128": "(hidden: not a URL, may contain a password)", "c:3128": "c:3128", "http://c/d@e": "http://c/d@e"} {
		if got := doctor.RedactURL(text); got != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// finished returns the files of a bundle.
func finished(t *testing.T, b *bundle) map[string]string {
	t.Helper()
	raw, err := b.finish()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "b")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return unpacked(t, path)
}

// Only known variables of the service's environment are shown.
func TestBundledEnvironment(t *testing.T) {
	b := newBundle()
	b.environment(doctor.Machine{EnvironmentFrom: "a test", Environment: []string{"HTTPS_PROXY=http://user:hunter2@proxy:3128",
		"https_proxy=hunter2@proxy:x%zz", "HTTP_PROXY=user:hunter2@proxy:3128",
		"PASSWORD=hunter2", "PATH=/bin", "CATTLE_AGENT_CONFIG=/c"}})
	got := finished(t, b)["environment.txt"]
	if strings.Contains(got, "hunter2") || !strings.Contains(got, "HTTPS_PROXY=http://hidden@proxy:3128\n") || !strings.Contains(got,
		"PATH=/bin\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestEnvironmentFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(path, []byte("CATTLE_AGENT_CONFIG_DIR=\"/x\"\nCATTLE_AGENT_CONFIG=\"/etc/other/config.yaml\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got := doctor.Variable(readEnvironmentFile(path), envConfig); got != "/etc/other/config.yaml" {
		t.Errorf("got %q", got)
	}
	for value, want := range map[string]string{
		`"http://u:a\$b\"c\\d\` + "`" + `@proxy"`: "http://u:a$b\"c\\d`@proxy", `'a\$b'`: `a\$b`, `a$b`: `a$b`,
		`""`: "", `"a\""`: `a"`, `"a\b"`: `a\b`, `a\b\$c`: `ab$c`,
	} {
		if got := unquoted(value); got != want {
			t.Errorf("%s is read as %s, want %s", value, got, want)
		}
	}
}

// A support bundle has the unit without values of variables, and of the journal only the lines of this agent and of systemd: in the same
// unit a legacy agent may have logged secrets.
func TestBundledService(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"systemctl": `[ "$1" = cat ] || exit 0
cat <<'EOF'
# /etc/systemd/system/rancher-system-agent.service.d/proxy.conf
[Service]
Environment="HTTPS_PROXY=http://user:hunter2@proxy:3128" \
  # a comment of somebody
  "SECOND=hunter2" \
  THIRD=hunter2
Restart=always
 Environment = FOURTH=hunter2
#Environment=FIFTH=hunter2
SetCredential=token:hunter2
EnvironmentFile=-/etc/default/agent
Environment=
ExecStart=/usr/local/bin/system-agent run
EOF
`,
		"journalctl": "echo \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	b := newBundle()
	b.service(t.Context())
	files := finished(t, b)
	unit := files["service/unit.txt"]
	for _, line := range []string{"Restart=always", "EnvironmentFile=-/etc/default/agent", "Environment=", "Environment=(hidden",
		"ExecStart=/usr/local/bin/system-agent run", "# /etc/systemd/system/rancher-system-agent.service.d/proxy.conf"} {
		if !strings.Contains(unit, line) {
			t.Errorf("%q is missing", line)
		}
	}
	if strings.Contains(unit, "hunter2") || t.Failed() {
		t.Errorf("the unit is\n%s", unit)
	}
	if got := files["service/journal.txt"]; !strings.Contains(got, "-u rancher-system-agent -t system-agent -t systemd ") {
		t.Errorf("journalctl %s", got)
	}
}
