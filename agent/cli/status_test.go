package cli

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/upgrade"
	"github.com/drover-dev/drover/plans"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestStatusText(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const sum = "3f2a9c0d11ee0000000000000000000000000000000000000000000000000000"
	const runDirectory = "/var/lib/rancher/agent/state/runs/3f2a9c0d11ee-2-1"
	running := func(states ...engine.State) *view {
		return &view{status: control.Status{Version: "v1.2.3", PID: 4711, Started: ago(50 * time.Hour),
			ConfigFile:     "/etc/rancher/agent/config.yaml",
			StateDirectory: "/var/lib/rancher/agent/state", Sources: states}}
	}
	hub := engine.State{Source: "hub", Machine: "fleet-default/custom-1-machine-plan", Checksum: sum, PlanState: plans.StateSucceeded,
		Revision: 4,
		Phase:    engine.PhaseIdle, Reason: "the plan is applied", Contacted: true}
	succeeded := journal.Attempt{Source: "hub", Checksum: sum, Revision: 4, Number: 1, Try: 1, Started: ago(3 * time.Hour),
		Ended:     ago(3*time.Hour - 83*time.Second),
		Succeeded: true, Instructions: []journal.InstructionRun{
			{Index: 0, Name: "prepare", Started: ago(3 * time.Hour), Ended: ago(3*time.Hour - 200*time.Millisecond)},
			{Index: 1, Name: "install", Started: ago(3*time.Hour - time.Second), Ended: ago(3*time.Hour - 83*time.Second), RunDir: runDirectory}}}
	failed := succeeded
	failed.Number, failed.Try, failed.Succeeded, failed.Message = 2, 2, false, "instructions[1] (install): exit code 4"
	failed.Started, failed.Ended = ago(2*time.Minute), ago(18*time.Second)
	failed.Instructions = []journal.InstructionRun{succeeded.Instructions[0], {Index: 1, Name: "install", Started: ago(2 * time.Minute),
		Ended: ago(18 * time.Second), ExitCode: 4, RunDir: runDirectory}}

	idle := hub
	idle.Last = &succeeded
	idle.Probes = map[string]plans.ProbeStatus{"kubelet": {Healthy: true}, "etcd": {Healthy: true}}
	idle.Periodic = map[string]engine.Periodic{"etcd-name": {LastSuccess: ago(3 * time.Minute), Next: now.Add(7 * time.Minute)}}

	retrying := hub
	retrying.PlanState, retrying.Phase, retrying.Reason = plans.StateInProgress, engine.PhaseWaiting,
		"the plan has failed and will be retried"
	retrying.NextTry, retrying.Last, retrying.Unreported = now.Add(12*time.Second), &failed, true

	applying := hub
	applying.PlanState, applying.Phase, applying.Reason = plans.StateInProgress, engine.PhaseApplying, "the plan is pending"
	goesOn := succeeded
	goesOn.Ended, goesOn.Succeeded, goesOn.Interrupted = time.Time{}, false, 1
	goesOn.Started = ago(4 * time.Minute)
	goesOn.Instructions = []journal.InstructionRun{succeeded.Instructions[0], {Index: 1, Name: "install", Started: ago(3 * time.Minute),
		RunDir: runDirectory}}
	applying.Last = &goesOn
	applying.Progress = &plans.Progress{Phase: plans.PhasePulling, Index: 1, Total: 3, Name: "install", Since: ago(20 * time.Second),
		PulledBytes: 300 << 20, TotalBytes: 1 << 30}

	unhealthy := idle
	unhealthy.Probes = map[string]plans.ProbeStatus{"kubelet": {FailureCount: 7}, "etcd": {Healthy: true}}
	unhealthy.Periodic = map[string]engine.Periodic{"capture-address": {ExitCode: 7, Failures: 3, LastFailure: ago(time.Minute),
		Next: now.Add(time.Minute)}, "etcd-name": {Running: true}}
	unhealthy.SourceError, unhealthy.SourceErrorSince = "dial tcp 192.0.2.1:443: connect: connection refused", ago(26*time.Hour)

	trial := running(idle)
	trial.status.Upgrade = &upgrade.Status{Phase: upgrade.PhaseTrial, Generation: 2, Version: "v1.3.0",
		Message: "the new agent must reach the hub within 10m0s, or the previous one is put back"}
	upgraded := running(idle)
	upgraded.status.Upgrade = &upgrade.Status{Phase: plans.UpgradeDone, Generation: 2, Version: "v1.2.3"}
	downloading := running(idle)
	downloading.status.Upgrade = &upgrade.Status{Phase: plans.UpgradeDownloading, Generation: 2}

	refused := hub
	refused.PlanState, refused.Phase, refused.Reason = plans.StatePending, engine.PhaseRefusing,
		"the plan has no signature, and planSignatures is enforce"
	local := engine.State{Source: "local/motd", Checksum: sum, Phase: engine.PhaseIdle, Last: &journal.Attempt{Number: 1, Try: 1,
		Checksum: sum,
		Started:  ago(time.Hour), Ended: ago(time.Hour), Message: "instructions[0]: did not end within 1h0m0s and was stopped",
		Instructions: []journal.InstructionRun{{Started: ago(2 * time.Hour), Ended: ago(time.Hour), ExitCode: -1, TimedOut: true}}}}

	down := running(engine.State{Source: "hub", Checksum: sum, Revision: 4, Phase: engine.PhaseIdle, Last: &goesOn,
		Reason: "the attempt was interrupted and goes on when the agent runs"})
	down.notRunning = control.ErrNotRunning
	empty := &view{notRunning: control.ErrNotRunning, status: control.Status{StateDirectory: "/var/lib/rancher/agent/state"}}

	tests := map[string]struct {
		view      *view
		attention string
	}{
		"idle":     {running(idle), ""},
		"retrying": {running(retrying), "hub: plan failed: instructions[1] (install): exit code 4"},
		"applying": {running(applying), ""},
		// An upgrade of the agent does not need attention: the hub has its condition.
		"upgrade-trial":       {trial, ""},
		"upgrade-downloading": {downloading, ""},
		"idle, upgraded":      {upgraded, ""},
		"unhealthy": {running(unhealthy),
			"hub: probe kubelet is unhealthy\nhub: hub unreachable: dial tcp 192.0.2.1:443: connect: connection refused"},
		"refused": {running(refused, local), "hub: plan refused: the plan has no signature, and planSignatures is enforce\n" +
			"local/motd: plan failed: instructions[0]: did not end within 1h0m0s and was stopped"},
		"not-running": {down, "no agent is listening"},
		"empty":       {empty, "no agent is listening"},
		"new": {running(engine.State{Source: "hub", Machine: "fleet-default/plan", Phase: engine.PhaseWaiting,
			Reason: "nothing has come from the hub yet"}), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			output := test.view.statusOutput()
			if got := strings.Join(output.Attention, "\n"); got != test.attention {
				t.Errorf("attention: got %q", got)
			}
			var text strings.Builder
			writeStatus(&text, output, now)
			file, _, _ := strings.Cut(name, ",")
			golden(t, "status-"+file+".txt", text.String())
		})
	}
}

func TestHistoryText(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	var text strings.Builder
	writeHistory(&text, []journal.Attempt{
		{Source: "hub", Checksum: strings.Repeat("a", 64), Revision: 1, Number: 1, Try: 1, Started: now.Add(-time.Hour),
			Ended:   now.Add(-59 * time.Minute),
			Message: "instructions[0]: exit code 1\nand more", RolledBack: true, Instructions: make([]journal.InstructionRun, 1)},
		{Source: "hub", Checksum: strings.Repeat("a", 64), Revision: 1, Number: 2, Try: 2, Started: now.Add(-50 * time.Minute),
			Ended: now.Add(-49 * time.Minute), Succeeded: true},
		{Source: "local/a", Checksum: strings.Repeat("b", 64), Number: 1, Try: 1, Started: now.Add(-5 * time.Second)},
	}, now)
	golden(t, "history.txt", text.String())
}

func TestFormat(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{-time.Second: "0s", 83 * time.Second: "83s", 200 * time.Second: "3m20s",
		50 * time.Hour: "2d2h"} {
		if got := age(now.Add(-d), now); got != want {
			t.Errorf("%s is %q, not %q", d, got, want)
		}
	}
}
