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
	"github.com/drover-dev/drover/plans"
)

var update = flag.Bool("update", false, "write the golden files anew")

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

// What a person reads at three in the morning.
func TestStatusText(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const sum = "3f2a9c0d11ee0000000000000000000000000000000000000000000000000000"
	const spool = "/var/lib/rancher/agent/state/runs/3f2a9c0d11ee-2-1"
	running := func(states ...engine.State) *view {
		return &view{Status: control.Status{Version: "v1.2.3", PID: 4711, Started: ago(50 * time.Hour), ConfigFile: "/etc/rancher/agent/config.yaml",
			StateDirectory: "/var/lib/rancher/agent/state", Sources: states}}
	}
	hub := engine.State{Source: "hub", Machine: "fleet-default/custom-1-machine-plan", Checksum: sum, PlanState: plans.StateSucceeded, Revision: 4,
		Doing: engine.DoingNothing, Reason: "the plan is applied", Contacted: true}
	succeeded := engine.Attempt{Source: "hub", Checksum: sum, Revision: 4, Number: 1, Try: 1, Started: ago(3 * time.Hour), Ended: ago(3*time.Hour - 83*time.Second),
		Succeeded: true, Instructions: []engine.InstructionRun{
			{Index: 0, Name: "prepare", Started: ago(3 * time.Hour), Ended: ago(3*time.Hour - 200*time.Millisecond)},
			{Index: 1, Name: "install", Started: ago(3*time.Hour - time.Second), Ended: ago(3*time.Hour - 83*time.Second), Spool: spool}}}
	failed := succeeded
	failed.Number, failed.Try, failed.Succeeded, failed.Message = 2, 2, false, "instructions[1] (install): exit code 4"
	failed.Started, failed.Ended = ago(2*time.Minute), ago(18*time.Second)
	failed.Instructions = []engine.InstructionRun{succeeded.Instructions[0], {Index: 1, Name: "install", Started: ago(2 * time.Minute), Ended: ago(18 * time.Second), ExitCode: 4, Spool: spool}}

	rest := hub
	rest.Last = &succeeded
	rest.Probes = map[string]plans.ProbeStatus{"kubelet": {Healthy: true}, "etcd": {Healthy: true}}
	rest.Periodic = map[string]engine.Periodic{"etcd-name": {LastSuccess: ago(3 * time.Minute), Next: now.Add(7 * time.Minute)}}

	retrying := hub
	retrying.PlanState, retrying.Doing, retrying.Reason = plans.StateInProgress, engine.DoingWait, "the plan has failed and is tried again soon"
	retrying.NextTry, retrying.Last, retrying.Unreported = now.Add(12*time.Second), &failed, true

	applying := hub
	applying.PlanState, applying.Doing, applying.Reason = plans.StateInProgress, engine.DoingApply, "the plan is pending"
	goesOn := succeeded
	goesOn.Ended, goesOn.Succeeded, goesOn.Interrupted = time.Time{}, false, 1
	goesOn.Started = ago(4 * time.Minute)
	goesOn.Instructions = []engine.InstructionRun{succeeded.Instructions[0], {Index: 1, Name: "install", Started: ago(3 * time.Minute), Spool: spool}}
	applying.Last = &goesOn
	applying.Progress = &plans.Progress{Phase: plans.PhasePulling, Index: 1, Total: 3, Name: "install", Since: ago(20 * time.Second), PulledBytes: 300 << 20, TotalBytes: 1 << 30}

	sick := rest
	sick.Probes = map[string]plans.ProbeStatus{"kubelet": {FailureCount: 7}, "etcd": {Healthy: true}}
	sick.Periodic = map[string]engine.Periodic{"capture-address": {ExitCode: 7, Failures: 3, LastFailure: ago(time.Minute), Next: now.Add(time.Minute)}, "etcd-name": {Running: true}}
	sick.SourceError, sick.SourceErrorSince = "dial tcp 192.0.2.1:443: connect: connection refused", ago(26*time.Hour)

	refused := hub
	refused.PlanState, refused.Doing, refused.Reason = plans.StatePending, engine.DoingRefuse, "the plan has no signature, and planSignatures is enforce"
	local := engine.State{Source: "local/motd", Checksum: sum, Doing: engine.DoingNothing, Last: &engine.Attempt{Number: 1, Try: 1, Checksum: sum,
		Started: ago(time.Hour), Ended: ago(time.Hour), Message: "instructions[0]: did not end within 1h0m0s and was stopped",
		Instructions: []engine.InstructionRun{{Started: ago(2 * time.Hour), Ended: ago(time.Hour), ExitCode: -1, TimedOut: true}}}}

	down := running(engine.State{Source: "hub", Checksum: sum, Revision: 4, Doing: engine.DoingNothing, Last: &goesOn,
		Reason: "the attempt was interrupted and goes on when the agent runs"})
	down.Down = control.ErrNotRunning
	empty := &view{Down: control.ErrNotRunning, Status: control.Status{StateDirectory: "/var/lib/rancher/agent/state"}}

	tests := map[string]struct {
		view      *view
		attention string
	}{
		"rest":     {running(rest), ""},
		"retrying": {running(retrying), "hub: the plan has failed: instructions[1] (install): exit code 4"},
		"applying": {running(applying), ""},
		"sick":     {running(sick), "hub: the probe kubelet is unhealthy\nhub: the hub cannot be reached: dial tcp 192.0.2.1:443: connect: connection refused"},
		"refused": {running(refused, local), "hub: the plan is refused: the plan has no signature, and planSignatures is enforce\n" +
			"local/motd: the plan has failed: instructions[0]: did not end within 1h0m0s and was stopped"},
		"down":  {down, "no agent answers"},
		"empty": {empty, "no agent answers"},
		"new":   {running(engine.State{Source: "hub", Machine: "fleet-default/plan", Doing: engine.DoingWait, Reason: "nothing has come from the hub yet"}), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := test.view.answer()
			if got := strings.Join(answer.Attention, "\n"); got != test.attention {
				t.Errorf("attention: got %q", got)
			}
			var text strings.Builder
			writeStatus(&text, answer, now)
			golden(t, "status-"+name+".txt", text.String())
		})
	}
}

func TestHistoryText(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	var text strings.Builder
	writeHistory(&text, []engine.Attempt{
		{Source: "hub", Checksum: strings.Repeat("a", 64), Revision: 1, Number: 1, Try: 1, Started: now.Add(-time.Hour), Ended: now.Add(-59 * time.Minute),
			Message: "instructions[0]: exit code 1\nand more", RolledBack: true, Instructions: make([]engine.InstructionRun, 1)},
		{Source: "hub", Checksum: strings.Repeat("a", 64), Revision: 1, Number: 2, Try: 2, Started: now.Add(-50 * time.Minute), Ended: now.Add(-49 * time.Minute), Succeeded: true},
		{Source: "local/a", Checksum: strings.Repeat("b", 64), Number: 1, Try: 1, Started: now.Add(-5 * time.Second)},
	}, now)
	golden(t, "history.txt", text.String())
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 1500 * time.Microsecond: "2ms", 2340 * time.Millisecond: "2.3s", 83 * time.Second: "1m23s", 2*time.Hour + 5*time.Minute + 9*time.Second: "2h5m", 50 * time.Hour: "2d2h",
	} {
		if got := span(d); got != want {
			t.Errorf("%s is %q, not %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 3 << 40: "3.0 TiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d is %q, not %q", n, got, want)
		}
	}
	if got := printable("a\x1b[2Jb\tc\n\x9bd\xff"); got != "a·[2Jb\tc\n·d·" {
		t.Errorf("got %q", got)
	}
}
