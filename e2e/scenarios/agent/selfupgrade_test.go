//go:build e2e

package agent

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/plans"
)

// agentBuild is a build of the agent with another version.
type agentBuild struct {
	version, path, checksum string
}

// buildAgent builds the agent of this checkout with a version.
func buildAgent(t *testing.T, version string) agentBuild {
	t.Helper()
	path := filepath.Join(t.TempDir(), "system-agent")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags",
		"-s -w -X github.com/drover-dev/drover/agent/cli.Version="+version, "-o", path, ".")
	cmd.Dir = "../../../agent"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the agent %s: %v\n%s", version, err, out)
	}
	return agentBuild{version, path, checksumOf(t, path)}
}

// brokenBuild is a program that prints the version of an agent, and does something else when it is run as one.
func brokenBuild(t *testing.T, version, run string) agentBuild {
	t.Helper()
	path := filepath.Join(t.TempDir(), "system-agent")
	script := "#!/bin/sh\n[ \"$1\" != --version ] || { echo system-agent version " + version + "; exit; }\n" + run + "\n"
	must(t, os.WriteFile(path, []byte(script), 0o755))
	return agentBuild{version, path, checksumOf(t, path)}
}

func checksumOf(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// upgrader is a node whose hub hands out an agent.
type upgrader struct {
	*node
	key     ed25519.PrivateKey
	offered atomic.Value
	// generation is that of the last request.
	generation int64
}

// newUpgrader installs a build with the install script, on a host with disks as newNode makes them.
func newUpgrader(t *testing.T, name string, installed agentBuild, disks ...string) *upgrader {
	t.Helper()
	u := connectUpgrader(newNode(t, name, disks...))
	t.Setenv("DROVER_E2E_AGENT", installed.path)
	u.install()
	return u
}

// connectUpgrader writes connection info for a hub that signs its plans.
func connectUpgrader(n *node) *upgrader {
	t := n.t
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	u := &upgrader{node: n, key: key}
	u.hub.SetFault(u.serveAgent)
	n.connect()
	var connection map[string]string
	must(t, json.Unmarshal([]byte(n.read(connectionFile)), &connection))
	connection["planSigningKey"] = base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	raw, err := json.Marshal(connection)
	must(t, err)
	n.write(connectionFile, string(raw), 0o600)
	return u
}

// serveAgent serves the agent that the hub hands out.
func (u *upgrader) serveAgent(w http.ResponseWriter, r *http.Request) bool {
	path, _ := u.offered.Load().(string)
	if !strings.HasPrefix(r.URL.Path, "/assets/") || path == "" {
		return false
	}
	http.ServeFile(w, r, path)
	return true
}

// rollBackAfter sets the timeout of upgrades. The agent reads it when it starts.
func (u *upgrader) rollBackAfter(timeout string) {
	u.t.Helper()
	u.write(configFile, u.read(configFile)+"upgradeTimeout: "+timeout+"\n", 0o600)
	before := u.pid()
	u.do("systemctl", "restart", service)
	u.running(before)
}

// request makes the hub hand out a build and ask for it.
func (u *upgrader) request(build agentBuild) {
	u.t.Helper()
	u.offered.Store(build.path)
	u.generation++
	raw, err := plans.SignUpgrade(u.key, plans.AgentUpgrade{Generation: u.generation, Sequence: u.generation,
		Checksums: map[string]string{runtime.GOARCH: build.checksum}}, "fleet-default/plan")
	must(u.t, err)
	u.hub.Change(func(secret *corev1.Secret) { secret.Data[plans.KeyAgentUpgrade] = raw })
}

// reported waits for the end of the requested upgrade.
func (u *upgrader) reported(phase plans.UpgradePhase) plans.AgentStatus {
	u.t.Helper()
	var last plans.AgentStatus
	until(u.t, string(phase), func() bool {
		if agent := u.status().Agent; agent != nil {
			last = *agent
		}
		return last.Generation == u.generation && last.Phase == phase
	})
	return last
}

// runs waits until the agent is a build, and nothing of the upgrade is left but the two binaries.
func (u *upgrader) runs(build agentBuild) {
	u.t.Helper()
	until(u.t, "the agent "+build.version, func() bool {
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(u.pid()) + "/exe")
		if err != nil {
			return false
		}
		sum := sha256.Sum256(raw)
		return hex.EncodeToString(sum[:]) == build.checksum
	})
	until(u.t, "the removal of the rollback units", func() bool {
		return u.do("sh", "-c", "find /etc/systemd/system -name '*rollback*'; systemctl list-timers --all --no-legend '*rollback*'") == ""
	})
	if got := u.do("system-agent", "--version"); !strings.HasSuffix(got, " "+build.version) {
		u.t.Errorf("installed is %q", got)
	}
	if got := strings.Fields(u.do("ls", "/usr/local/bin/system-agent-versions")); len(got) > 2 {
		u.t.Errorf("kept are %v", got)
	}
}

// TestSelfUpgrade upgrades the agent while an instruction runs: the instruction goes on and is reported once, and then the same process is
// the new agent. A broken one is rolled back, and the one after it is installed.
func TestSelfUpgrade(t *testing.T) {
	first, second := buildAgent(t, "v1.0.0"), buildAgent(t, "v1.1.0")
	u := newUpgrader(t, "selfup", first)
	pid := u.running(0)
	checksum := u.deliver(plans.Plan{Instructions: []plans.Instruction{shell("slow", slow)}})
	until(t, "the slow instruction", func() bool { return u.read("/root/slow") != "" })
	u.request(second)
	if got := u.reported(plans.UpgradeWaiting); got.Version != first.version {
		t.Errorf("reported is %+v", got)
	}
	if u.pid() != pid {
		t.Error("the agent does not finish its plan")
	}
	u.write("/root/go", "", 0o600)
	status := u.ended()
	if status.State != plans.StateSucceeded || status.AppliedChecksum != checksum || status.SuccessCount != 1 || status.Revision != 1 ||
		string(status.AppliedOutput["slow"]) != "it is done\n" || u.read("/root/slow") != "started\n" {
		t.Errorf("got %+v", status)
	}
	if got := u.reported(plans.UpgradeDone); got.Version != second.version || got.Message != "" {
		t.Errorf("reported is %+v", got)
	}
	u.runs(second)
	if u.pid() != pid {
		t.Error("the new agent is another process")
	}

	u.rollBackAfter("5s")
	for name, run := range map[string]string{
		"crashes": "exit 7",
		"hangs":   "exec sleep 3600",
		// It is the previous agent, with a network of its own.
		"is cut off": "exec unshare --net /usr/local/bin/system-agent-versions/" + second.checksum + " \"$@\"",
	} {
		u.request(brokenBuild(t, "v1.2.0", run))
		got := u.reported(plans.UpgradeRolledBack)
		t.Logf("an agent that %s: %s", name, got.Message)
		if got.Version != second.version || !strings.HasPrefix(got.Message, "version v1.2.0 did not reach the hub within 5s: service is ") {
			t.Errorf("%s: reported is %+v", name, got)
		}
		u.runs(second)
	}
	next := u.deliver(plans.Plan{Instructions: []plans.Instruction{shell("next", "echo next")}})
	until(t, "the next plan", func() bool { return u.status().AppliedChecksum == next })
	third := buildAgent(t, "v1.3.0")
	u.request(third)
	if got := u.reported(plans.UpgradeDone); got.Version != third.version {
		t.Errorf("reported is %+v", got)
	}
	u.runs(third)
	if got := u.read("/root/slow"); got != "started\n" {
		t.Errorf("the instruction ran: %q", got)
	}
}

// TestSelfUpgradeOfPackage asks an agent of a package to upgrade itself, which it refuses: the package manager owns its binary.
func TestSelfUpgradeOfPackage(t *testing.T) {
	n := newNode(t, "selfpackage")
	n.debs("drover-agent", repositoryBin(t))
	u := connectUpgrader(n)
	n.dpkg("-i", "/root/1.deb")
	n.install()
	pid, before := n.running(0), n.do("rancher-system-agent", "--version")
	u.request(buildAgent(t, "v9.9.9"))
	if got := u.reported(plans.UpgradeRefused); !strings.Contains(got.Message, "upgrade the package drover-agent with the package manager") {
		t.Errorf("reported is %+v", got)
	}
	if now := n.do("rancher-system-agent", "--version"); now != before || n.pid() != pid {
		t.Errorf("the agent is %q, was %q", now, before)
	}
}

// TestSelfUpgradeTrialCut takes the power away while a new agent that does not reach the hub runs: the rollback starts with the machine.
func TestSelfUpgradeTrialCut(t *testing.T) {
	first := buildAgent(t, "v1.0.0")
	u := newUpgrader(t, "trialcut", first)
	u.rollBackAfter("20s")
	u.request(brokenBuild(t, "v1.2.0", "touch /root/tried; exec sleep 3600"))
	until(t, "the new agent", func() bool { return u.read("/root/tried") != "" || u.exists("/root/tried") })
	must(t, u.Kill())
	must(t, u.Boot(t.Context()))
	if got := u.reported(plans.UpgradeRolledBack); got.Version != first.version {
		t.Errorf("reported is %+v", got)
	}
	u.runs(first)
}

func (u *upgrader) exists(path string) bool {
	_, err := os.Stat(u.Path(path))
	return err == nil
}
