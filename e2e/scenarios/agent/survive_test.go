//go:build e2e

package agent

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/plans"
)

// slow runs until the test lets it end, and counts how often it was started.
const slow = "echo started >>/root/slow; while [ ! -e /root/go ]; do sleep 0.05; done; echo it is done"

// TestRestartInTheMiddle restarts and then replaces the agent while an instruction runs: it goes on, and is reported once.
func TestRestartInTheMiddle(t *testing.T) {
	t.Parallel()
	n := newNode(t, "restart")
	n.connect()
	n.install()
	n.fast("")
	checksum := n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("first", "echo first >>/root/first"), shell("slow", slow)}})
	until(t, "the slow instruction", func() bool { return n.read("/root/slow") != "" })
	shellPID := n.do("pgrep", "-o", "-f", "sh -c echo started")
	before := n.pid()

	n.do("systemctl", "restart", service)
	before = n.running(before)
	n.copy(binary(), "/usr/local/bin/system-agent") // as an upgrade does
	n.do("systemctl", "restart", service)
	n.running(before)
	if got := n.do("pgrep", "-o", "-f", "sh -c echo started"); got != shellPID {
		t.Errorf("the instruction is process %s, and was %s", got, shellPID)
	}
	if got := n.status().State; got != plans.StateInProgress {
		t.Errorf("while it runs the state is %s", got)
	}
	n.hub.Requests()
	n.write("/root/go", "", 0o600)
	status := n.ended()
	if status.State != plans.StateSucceeded || status.AppliedChecksum != checksum || status.SuccessCount != 1 || status.Revision != 1 ||
		string(status.AppliedOutput["slow"]) != "it is done\n" {
		t.Errorf("got %+v", status)
	}
	if got := n.read("/root/slow") + n.read("/root/first"); got != "started\nfirst\n" {
		t.Errorf("instructions ran: %q", got)
	}
	time.Sleep(time.Second) // what would be reported twice would be so soon
	puts := 0
	for _, request := range n.hub.Requests() {
		if request == "PUT" {
			puts++
		}
	}
	if puts > 2 { // the outcome, and progress that is cleared
		t.Errorf("%d reports", puts)
	}
	until(t, "the end of all units", func() bool {
		return n.do("systemctl", "list-units", "--all", "--plain", "--no-legend", "system-agent-*") == ""
	})
}

// TestWatchdog stops the agent's process in the middle of an instruction, as if it hung: systemd restarts it, and nothing is lost.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	n := newNode(t, "watchdog")
	n.connect()
	n.install()
	n.fast("WatchdogSec=2s\nTimeoutStopSec=1s\n")
	n.do("systemctl", "restart", service)
	checksum := n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("slow", slow)}})
	until(t, "the slow instruction", func() bool { return n.read("/root/slow") != "" })
	until(t, "a status that names the plan", func() bool {
		return strings.Contains(n.do("systemctl", "show", "--property=StatusText", "--value", service), checksum[:12])
	})
	time.Sleep(3 * time.Second) // an agent that is well outlives its watchdog
	pid := 0
	until(t, "an agent to stop", func() bool {
		pid = n.running(0)
		return syscall.Kill(pid, syscall.SIGSTOP) == nil
	})
	began := time.Now()
	n.running(pid)
	t.Logf("restarted after %.1f s", time.Since(began).Seconds())
	n.write("/root/go", "", 0o600)
	if status := n.ended(); status.State != plans.StateSucceeded || status.AppliedChecksum != checksum ||
		string(status.AppliedOutput["slow"]) != "it is done\n" {
		t.Errorf("got %+v", status)
	}
	if got := n.read("/root/slow"); got != "started\n" {
		t.Errorf("the instruction ran: %q", got)
	}
	until(t, "word of the watchdog in the journal", func() bool {
		return strings.Contains(n.do("journalctl", "-u", service, "--no-pager", "-o", "cat"), "Watchdog timeout")
	})
}
