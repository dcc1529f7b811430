//go:build e2e

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/plans"
)

// registers lets the hub register machines, too.
func (n *node) registers(token string) (checksum string) {
	n.t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.hub.Certificate().Raw})
	n.connect()
	info := n.read(connectionFile)
	n.do("rm", "-rf", varDir)
	secrets := n.hub.Config.Handler
	mux := http.NewServeMux()
	mux.Handle("/", secrets)
	mux.HandleFunc("/cacerts", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(ca) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("/v3/connect/agent", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(info))
	})
	n.hub.Config.Handler = mux
	sum := sha256.Sum256(ca)
	return hex.EncodeToString(sum[:])
}

// answer runs a program on the host and gives its exit code and everything that it prints.
func (n *node) answer(argv ...string) (int, string) {
	n.t.Helper()
	res, err := n.Exec(n.t.Context(), argv...)
	must(n.t, err)
	return res.ExitCode, res.Stdout + res.Stderr
}

// TestPeople does what an operator with one program and a token does: join, inspect, fix, create a support bundle, leave.
func TestPeople(t *testing.T) {
	t.Parallel()
	const token = "hunter2-of-the-registration"
	n := newNode(t, "people")
	checksum := n.registers(token)
	n.copy(binary(), "/root/media/agent")
	n.write("/root/token", token+"\n", 0o600)
	code, said := n.answer("/root/media/agent", "join", "--server", n.hub.URL, "--token-file", "/root/token", "--ca-checksum", checksum,
		"--worker")
	if code != 0 || strings.Contains(said, token) {
		t.Fatalf("join ends with %d:\n%s", code, said)
	}
	n.running(0)

	n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("prepare", "echo prepared"),
		shell("install", "echo on fire >&2; [ -e /root/fixed ] || exit 4")}})
	until(t, "the failure", func() bool { return n.status().State == plans.StateFailed })
	until(t, "a status that tells of the failure", func() bool {
		code, said = n.answer("system-agent", "status")
		return code == 3 && strings.Contains(said, "FAILED    instructions[1] (install), exit code 4")
	})
	if got := n.do("system-agent", "logs", "--instruction", "install", "--stderr"); got != "on fire" {
		t.Errorf("logs: %q", got)
	}
	n.write("/root/fixed", "", 0o600)
	n.do("system-agent", "retry")
	until(t, "success", func() bool { return n.status().State == plans.StateSucceeded })
	until(t, "a status that knows", func() bool { code, _ := n.answer("system-agent", "status"); return code == 0 })

	// A machine on which all is well has no problem, whatever warnings an nspawn container deserves.
	doctor := ""
	t.Cleanup(func() { t.Logf("doctor:\n%s", doctor) })
	until(t, "a doctor who finds all well", func() bool {
		code, doctor = n.answer("system-agent", "doctor")
		return code == 0 && !slices.ContainsFunc([]string{"hub credentials", "clock", "pinned CA", "service", "contact with hub"},
			func(check string) bool { return !regexp.MustCompile(`(?m)^ok +` + check + `  `).MatchString(doctor) })
	})
	n.do("system-agent", "support-bundle", "-f", "/root/bundle.tar.gz")
	n.do("tar", "xzf", "/root/bundle.tar.gz", "-C", "/root")
	for file, want := range map[string]string{"service/unit.txt": "ExecStart=", "service/journal.txt": "Plan ended",
		"status.json": `"running": true`, "plans/hub.json": `"name": "install"`} {
		if got := n.read("/root/system-agent/" + file); !strings.Contains(got, want) {
			t.Errorf("%s of the bundle is\n%s", file, got)
		}
	}
	if found := n.do("sh", "-c", "grep -rlE 'hunter2|on fire|Bearer' /root/system-agent || true"); found != "" {
		t.Errorf("secrets in the bundle: %s", found)
	}

	// Whoever leaves stops what still runs.
	n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("long", "echo begun >/root/begun; sleep 600")}})
	until(t, "the long instruction", func() bool { return n.read("/root/begun") != "" })
	var status struct {
		Sources []struct {
			Last struct {
				Instructions []struct {
					RunDir string `json:"spool"`
				}
			}
		}
	}
	must(t, json.Unmarshal([]byte(n.do("system-agent", "status", "-o", "json")), &status))
	if got := n.do("systemctl", "list-units", "--plain", "--no-legend", "system-agent-*"); !strings.Contains(got, ".service") ||
		len(status.Sources) != 1 {
		t.Errorf("the instruction runs in no unit: %q, %+v", got, status)
	}
	code, said = n.answer("system-agent", "leave", "--yes")
	if code != 0 || !strings.Contains(said, "Removed "+varDir) {
		t.Errorf("leave ends with %d:\n%s", code, said)
	}
	if left := n.do("sh", "-c", "pgrep -x sleep; systemctl list-units --plain --no-legend 'system-agent-*' '*system-agent.service'; "+
		"ls -d /usr/local/bin/*system-agent* /etc/rancher/agent /var/lib/rancher/agent "+
		"/etc/systemd/system/*system-agent* /run/rancher-system-agent/agent.sock 2>/dev/null || true"); left != "" {
		t.Errorf("left after leaving:\n%s", left)
	}
}
