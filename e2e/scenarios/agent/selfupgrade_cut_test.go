//go:build e2e && full

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

const (
	binDir      = "/usr/local/bin"
	versionsDir = binDir + "/system-agent-versions"
	unitDir     = "/etc/systemd/system"
	wantsDir    = unitDir + "/timers.target.wants"
	stateDir    = varDir + "/state"
	upgradeFile = stateDir + "/agent-upgrade"
	rollback    = service + "-rollback"
)

// cutter is a node whose power is cut while its agent is upgraded. Binaries, units and state are on three disks, of which a power cut
// leaves what was synced.
type cutter struct {
	*upgrader
	t *testing.T
	// base is what all builds are copies of, installed the one that is the agent.
	base, installed agentBuild
	builds          int
	plan            plans.Status
}

// newCutter makes the node, with an agent that has applied a plan.
func newCutter(t *testing.T, name string) *cutter {
	t.Helper()
	base := buildAgent(t, "v1.0.0")
	c := &cutter{t: t, base: base, installed: base, upgrader: newUpgrader(t, name, base, binDir, unitDir, varDir)}
	c.deliver(plans.Plan{Instructions: []plans.Instruction{shell("once", "echo once >>/root/ran")}})
	c.plan = c.ended()
	// What the install script and the test have written is not what is tested.
	c.do("sync", "-f", binDir)
	c.do("sync", "-f", unitDir)
	c.do("sync", "-f", varDir)
	return c
}

// next is another build that works: the same program with another checksum.
func (c *cutter) next() agentBuild {
	c.t.Helper()
	raw, err := os.ReadFile(c.base.path)
	must(c.t, err)
	c.builds++
	path := filepath.Join(c.t.TempDir(), "system-agent")
	must(c.t, os.WriteFile(path, fmt.Appendf(raw, "build %d", c.builds), 0o755))
	return agentBuild{c.base.version, path, checksumOf(c.t, path)}
}

// hold has the hub answer nothing until release is called.
func (c *cutter) hold() (release func()) {
	gate := make(chan struct{})
	c.hub.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		select {
		case <-gate:
			return c.serveAgent(w, r)
		case <-r.Context().Done():
			return true
		}
	})
	return func() { close(gate) }
}

// phase is that of the state on the disk.
func (c *cutter) phase() string {
	var state struct {
		Phase string `json:"phase"`
	}
	raw := c.read(upgradeFile)
	if err := json.Unmarshal([]byte(raw), &state); err != nil && raw != "" {
		c.t.Errorf("the state is %q", raw)
	}
	return state.Phase
}

// recoverable fails the test unless a host that has just booted has an agent that works, or a timer that brings it back. It returns what it
// has.
func (c *cutter) recoverable(next agentBuild) string {
	c.t.Helper()
	// In this order, since the timer may be about to end its work.
	timer := c.do("sh", "-c", "systemctl is-active "+rollback+".timer || true")
	sum, phase := checksumOf(c.t, c.Path(binDir+"/system-agent")), c.phase()
	name := map[string]string{c.installed.checksum: "previous", next.checksum: "new"}[sum]
	switch {
	case name == "":
		c.t.Errorf("the agent has the checksum %s", sum)
	case name == "new" && phase != "committed" && timer != "active":
		c.t.Errorf("nothing would roll the new agent back: phase %q, the timer is %s", phase, timer)
	}
	return fmt.Sprintf("%s agent, phase %q, timer %s", name, phase, timer)
}

// boots turns the host on while the hub does not answer, and looks at what the cut has left.
func (c *cutter) boots(next agentBuild) string {
	c.t.Helper()
	release := c.hold()
	must(c.t, c.Boot(c.t.Context()))
	left := c.recoverable(next)
	release()
	return left
}

// upgraded waits until a build is the agent to stay.
func (c *cutter) upgraded(next agentBuild) {
	c.t.Helper()
	c.reported(plans.UpgradeDone)
	c.runs(next)
	c.installed = next
}

// unchanged fails the test if a plan was applied again.
func (c *cutter) unchanged() {
	c.t.Helper()
	want, got := c.plan, c.status()
	want.Agent, got.Agent = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("the status of the plan has changed (-want +got):\n%s", diff)
	}
	if got := c.read("/root/ran"); got != "once\n" {
		c.t.Errorf("the instruction ran: %q", got)
	}
}

// settled reports whether nothing of an upgrade is left to do on the host.
func (c *cutter) settled() bool {
	versions, _ := os.ReadDir(c.Path(versionsDir))
	for _, path := range []string{wantsDir + "/" + rollback + ".timer", unitDir + "/" + rollback + ".timer",
		unitDir + "/" + rollback + ".service"} {
		if _, err := os.Lstat(c.Path(path)); err == nil {
			return false
		}
	}
	return len(versions) == 2 && (c.phase() == "committed" || c.phase() == "rolled-back")
}

// ofUpgrade reports whether an event is a step of an upgrade or of its rollback: something was written, or a program is executed or copied.
func ofUpgrade(e fileEvent) bool {
	dir, name := filepath.Split(e.path)
	switch filepath.Clean(dir) {
	case stateDir:
		return e.path == upgradeFile && e.what == "replaced"
	case versionsDir:
		return e.what == "created" || e.what != "opened" || !strings.HasPrefix(name, ".")
	case binDir:
		return e.path == binDir+"/system-agent" || name == ".system-agent.tmp" && e.what == "created"
	}
	return strings.HasPrefix(name, rollback) && (e.what == "replaced" || e.what == "removed")
}

func (c *cutter) watch() *fileWatch {
	return c.watchFiles(binDir, versionsDir, unitDir, wantsDir, stateDir)
}

// TestSelfUpgradePowerCut cuts the power at every step of an upgrade, one after the other: while the binary is downloaded, while a plan is
// waited for, and at each change of a file. After each the machine boots with an agent, and the upgrade is completed. No plan is applied
// again.
func TestSelfUpgradePowerCut(t *testing.T) {
	c := newCutter(t, "selfcut")
	c.cutDuringDownload()
	c.cutWhileWaiting()
	for number := 1; ; number++ {
		next := c.next()
		watch := c.watch()
		began := time.Now()
		c.request(next)
		generation := c.generation
		seen, cut := c.cutAt(number, watch, ofUpgrade, func() bool {
			agent := c.status().Agent
			return agent != nil && agent.Generation == generation && agent.Phase == plans.UpgradeDone && c.settled()
		})
		if !cut {
			t.Logf("an upgrade has %d steps: %v", len(seen), seen)
			if number < 15 {
				t.Error("steps are missing")
			}
			c.upgraded(next)
			break
		}
		left := c.boots(next)
		c.upgraded(next)
		t.Logf("%2d %s: %s; %.1f s", number, seen[number-1], left, time.Since(began).Seconds())
	}
	c.unchanged()
}

// cutDuringDownload cuts the power when half of the binary has been sent.
func (c *cutter) cutDuringDownload() {
	c.t.Helper()
	next, halfway := c.next(), make(chan struct{}, 10)
	raw, err := os.ReadFile(next.path)
	must(c.t, err)
	c.hub.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/assets/") {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
		_, _ = w.Write(raw[:len(raw)/2])
		w.(http.Flusher).Flush()
		halfway <- struct{}{}
		<-r.Context().Done()
		return true
	})
	c.request(next)
	<-halfway
	must(c.t, c.Kill())
	c.t.Logf("download: %s", c.boots(next))
	c.upgraded(next)
}

// cutWhileWaiting cuts the power while the upgrade waits for a plan. The interrupted instruction runs again, as without an upgrade, and
// then the agent is upgraded.
func (c *cutter) cutWhileWaiting() {
	c.t.Helper()
	next := c.next()
	c.deliver(plans.Plan{Instructions: []plans.Instruction{shell("before", "echo before >>/root/before"), shell("slow", slow)}})
	until(c.t, "the slow instruction", func() bool { return c.read("/root/slow") != "" })
	c.request(next)
	c.reported(plans.UpgradeWaiting)
	must(c.t, c.Kill())
	c.write("/root/go", "", 0o600)
	c.t.Logf("waiting for a plan: %s", c.boots(next))
	c.plan = c.ended()
	c.upgraded(next)
	if before, slow := c.read("/root/before"), c.read("/root/slow"); before != "before\n" || slow != "started\nstarted\n" {
		c.t.Errorf("the instructions ran: %q, %q", before, slow)
	}
}

// TestSelfRollbackPowerCut cuts the power at every step of a rollback, one after the other. After each the machine boots and has the
// previous agent in the end.
func TestSelfRollbackPowerCut(t *testing.T) {
	c := newCutter(t, "backcut")
	c.rollBackAfter("8s")
	c.do("sync", "-f", varDir)
	for number := 1; ; number++ {
		began := time.Now()
		next := brokenBuild(t, "v1.2.0", fmt.Sprintf("echo %d >>/root/tried; exec sleep 3600", number))
		c.request(next)
		until(t, "the new agent", func() bool { return strings.HasSuffix(c.read("/root/tried"), fmt.Sprintf("%d\n", number)) })
		seen, cut := c.cutAt(number, c.watch(), ofUpgrade, c.settled)
		left := "no cut"
		if cut {
			left = c.boots(next)
		}
		if got := c.reported(plans.UpgradeRolledBack); got.Version != c.base.version {
			t.Errorf("reported is %+v", got)
		}
		c.runs(c.base)
		if !cut {
			t.Logf("a rollback has %d steps: %v", len(seen), seen)
			if number < 6 {
				t.Error("steps are missing")
			}
			break
		}
		t.Logf("%2d %s: %s; %.1f s", number, seen[number-1], left, time.Since(began).Seconds())
	}
	c.unchanged()
}
