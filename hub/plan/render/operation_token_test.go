package render

import (
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// fakeCurl is a server that takes a token: it notes its arguments, and writes the token that is in the configuration on its standard input.
// If the file refuses is there it fails after, if the file away is there before.
const fakeCurl = `#!/bin/sh
printf '%s ' "$@" >>"$FAKE/arguments"
cat >"$FAKE/config"
[ ! -e "$FAKE/away" ] || { echo "curl: (7) Failed to connect" >&2; exit 7; }
token=$(sed -n 's/.*newToken\\":\\"\([a-z0-9]*\)\\".*/\1/p' "$FAKE/config")
printf 'K10%064d::server:%s\n' 0 "$token" >"$FAKE/token"
[ ! -e "$FAKE/refuses" ] || { echo "curl: (22) The requested URL returned error: 500" >&2; exit 22; }
`

// written is when the server has written its passwords.
var written = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type tokenHost struct {
	t   *testing.T
	dir string
}

const oldToken, fresh, freshAgent = `old"to\ken`, "bcdfgh2456", "xyzw9876"

func newTokenHost(t *testing.T) *tokenHost {
	t.Helper()
	h := &tokenHost{t, t.TempDir()}
	writePrograms(t, h.dir, clockPrograms,
		map[string]string{"curl": fakeCurl, "token": "K10" + strings.Repeat("0", 64) + "::server:" + oldToken + "\n",
			"passwd": "agent-before,node,node,k3s:agent\n" + `"old""to\ken",server,server,k3s:server` + "\n"})
	if err := os.Chtimes(filepath.Join(h.dir, "passwd"), written, written); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *tokenHost) run(script, step, seconds string) (string, error) {
	h.t.Helper()
	command := exec.CommandContext(h.t.Context(), "/bin/sh", "-c", script, "server-token", step, filepath.Join(h.dir, "state"), seconds, "2",
		filepath.Join(h.dir, "token"), "/ca.crt", "https://127.0.0.1:6443/v1-k3s/token", filepath.Join(h.dir, "passwd"))
	command.Env = append(os.Environ(), "PATH="+h.dir+":"+os.Getenv("PATH"), "FAKE="+h.dir, "NEW_TOKEN="+fresh,
		"NEW_AGENT_TOKEN="+freshAgent)
	output, err := command.CombinedOutput()
	if out := string(output); strings.Contains(out, fresh) || strings.Contains(out, oldToken) || strings.Contains(out, freshAgent) {
		h.t.Errorf("a token is printed: %s", output)
	}
	if strings.Contains(h.get("arguments"), fresh) || strings.Contains(h.get("arguments"), oldToken) {
		h.t.Errorf("a token is an argument: %s", h.get("arguments"))
	}
	return string(output), err
}

func (h *tokenHost) get(name string) string {
	content, _ := os.ReadFile(filepath.Join(h.dir, name))
	return string(content)
}

func (h *tokenHost) touch(name string) {
	if err := os.WriteFile(filepath.Join(h.dir, name), nil, 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func TestServerTokenScript(t *testing.T) {
	h := newTokenHost(t)
	if out, err := h.run(serverTokenSh, "check", "60"); err == nil || !strings.Contains(out, "not started with the new token") {
		t.Errorf("%v: %s", err, out)
	}
	for _, want := range []string{"token rotated", "has the new token"} {
		if out, err := h.run(serverTokenSh, "rotate", "60"); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %s", err, out)
		}
	}
	if config := h.get("config"); !strings.Contains(config, `user = "server:old\"to\\ken"`) ||
		!strings.Contains(config, `data-binary = "{\"newToken\":\"`+fresh+`\"}"`) {
		t.Errorf("curl was given %s", config)
	}
	if strings.Count(h.get("arguments"), "PUT") != 1 {
		t.Errorf("the server was asked with %s", h.get("arguments"))
	}
	if out, err := h.run(serverTokenSh, "check", "60"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestServerTokenScriptPasswords: what a server writes to the cluster's data has the new token of agents before the server is asked, since
// no server could start a second time otherwise. Until then it is not newer than that data.
func TestServerTokenScriptPasswords(t *testing.T) {
	h := newTokenHost(t)
	h.touch("away")
	if out, err := h.run(serverTokenSh, "rotate", "60"); err == nil {
		t.Errorf("%v: %s", err, out)
	}
	want := freshAgent + ",node,node,k3s:agent\n" + `"old""to\ken",server,server,k3s:server` + "\n"
	info, err := os.Stat(filepath.Join(h.dir, "passwd"))
	if err != nil || h.get("passwd") != want || !info.ModTime().Equal(written) || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: the file is of %v and has %q", err, info, h.get("passwd"))
	}
}

// A server that refuses the token may be asked again; one that has taken it and failed may not, since it is not known which token the data
// is encrypted with.
func TestServerTokenScriptFails(t *testing.T) {
	h := newTokenHost(t)
	h.touch("away")
	if out, err := h.run(serverTokenSh, "rotate", "60"); err == nil || !strings.Contains(out, "Failed to connect") {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.Remove(filepath.Join(h.dir, "away")); err != nil {
		t.Fatal(err)
	}
	h.touch("refuses")
	for _, want := range []string{"error: 500", "its state is not known", "its state is not known"} {
		if out, err := h.run(serverTokenSh, "rotate", "60"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// The script is killed before each of its lines and run again.
func TestServerTokenScriptKilled(t *testing.T) {
	host := newTokenHost(t)
	lines := reached(t, serverTokenSh, filepath.Join(host.dir, "lines"), func(script string) error {
		_, err := host.run(script, "rotate", "60")
		return err
	})
	if len(lines) < 15 {
		t.Errorf("it comes to the lines %d", lines)
	}
	for _, line := range lines {
		h := newTokenHost(t)
		var exit *exec.ExitError
		if out, err := h.run(insertBefore(serverTokenSh, map[int]string{line: "kill -9 $$"}), "rotate", "60"); !errors.As(err, &exit) ||
			exit.ExitCode() != -1 {
			t.Fatalf("killed at line %d: %v\n%s", line, err, out)
		}
		if out, err := h.run(serverTokenSh, "rotate", "60"); err != nil || !strings.HasSuffix(h.get("token"), fresh+"\n") {
			t.Errorf("killed at line %d: %v\n%s", line, err, out)
		}
		if !strings.HasPrefix(h.get("passwd"), freshAgent+",node,node,") {
			t.Errorf("killed at line %d: the passwords are %q", line, h.get("passwd"))
		}
	}
}

func configuration(t *testing.T, plan plans.Plan) string {
	t.Helper()
	for _, f := range plan.Files {
		if strings.HasSuffix(f.Path, "/50-rancher.yaml") {
			content, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
	}
	t.Fatal("no configuration")
	return ""
}

func TestTokenInstructions(t *testing.T) {
	op := &operationv1.TokenRotation{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	for _, name := range []string{"k3s-single-node", "everything-set-rke2", "k3s-worker"} {
		in := goldenCases(t)[name]
		in.Cluster.Tokens = Tokens{Server: "server-before", Agent: "agent-before", NewServer: fresh, NewAgent: freshAgent}
		plan, _ := Plan(in)
		if in.Machine.server() {
			with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: "s", Name: operation.TaskRotateToken})
			i := with.Instructions[len(with.Instructions)-1]
			if err := with.Validate(); err != nil || i.Name != "rotate-token" || !i.SaveOutput ||
				strings.Contains(strings.Join(i.Args, " "), fresh) || strings.Contains(strings.Join(i.Args, " "), freshAgent) ||
				!slices.Contains(i.Env, "NEW_AGENT_TOKEN="+freshAgent) {
				t.Errorf("%s: %v, %+v", name, err, i)
			}
			if ImpactOf(plan, with) != ImpactNone || configuration(t, with) != configuration(t, plan) {
				t.Errorf("%s: the plan that rotates the token changes more", name)
			}
		}
		// The configuration is that of the plan that is wanted then, and nothing restarts.
		in.Cluster.Tokens = Tokens{Server: fresh, Agent: "agent-after"}
		wanted, _ := Plan(in)
		with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: "t", Name: operation.TaskConfigureToken})
		if got := configuration(t, with); got != configuration(t, wanted) || strings.Contains(got, "-before") {
			t.Errorf("%s: the configuration is %s", name, got)
		}
		last := with.Instructions[len(with.Instructions)-1]
		if ages := slices.ContainsFunc(last.Args, func(a string) bool { return strings.HasSuffix(a, "/server/cred/passwd") }); ages !=
			in.Machine.server() || with.Validate() != nil {
			t.Errorf("%s: the last instruction is %+v", name, last)
		}
		if ImpactOf(plan, with) != ImpactNone || ImpactOf(with, wanted) == ImpactNone || !HasTask(with, op, "t") {
			t.Errorf("%s: the impacts are %s and %s", name, ImpactOf(plan, with), ImpactOf(with, wanted))
		}
	}
}
