package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/upgrade"
	"github.com/drover-dev/drover/plans"
)

// statusWriter writes the text of `status`: rows of a title and a value.
type statusWriter struct {
	table   io.Writer
	running bool
	now     time.Time
}

func (w statusWriter) row(title, format string, args ...any) {
	fmt.Fprintf(w.table, "%s\t%s\n", title, fmt.Sprintf(format, args...))
}

func writeStatus(out io.Writer, status statusOutput, now time.Time) {
	var text strings.Builder
	table := newTable(&text)
	w := statusWriter{table: table, running: status.Running, now: now}
	if status.Running {
		w.row("Agent", "running %s, PID %d, up %s", status.Version, status.PID, age(status.Started, now))
		w.row("Config", "%s", status.ConfigFile)
	} else {
		w.row("Agent", "NOT RUNNING: %s", status.NotRunning)
		w.row("", "see systemctl status %s; the following was read from %s", unitName, status.StateDirectory)
	}
	if u := status.Upgrade; u != nil && u.Phase != plans.UpgradeDone {
		w.row("Upgrade", "%s", upgradeText(*u))
	}
	for _, state := range status.Sources {
		w.row("", "")
		w.source(state)
	}
	if len(status.Sources) == 0 {
		w.row("Plan", "none delivered yet")
	}
	_ = table.Flush()
	// The table pads the empty title of a row that has no value.
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(out, strings.TrimRight(line, " \n"))
	}
}

// upgradeText is an upgrade of the agent that has not ended, or that did not succeed: "TRIAL of v1.3.0: ...".
func upgradeText(u upgrade.Status) string {
	text := strings.ToUpper(string(u.Phase))
	if u.Version != "" {
		text += " of " + u.Version
	}
	if u.Message != "" {
		text += ": " + firstLine(u.Message)
	}
	return text
}

func (w statusWriter) source(s engine.State) {
	name := s.Source
	if s.Machine != "" {
		name += ", plan Secret " + s.Machine
	}
	w.row("Source", "%s", name)
	phase := strings.ToUpper(string(s.Phase))
	if s.Reason != "" {
		phase += ": " + s.Reason
	}
	if !s.NextTry.IsZero() {
		phase += ", next try " + timeUntil(s.NextTry, w.now)
	}
	if w.running || s.Reason != "" {
		w.row("Phase", "%s", phase)
	}
	if w.running && failed(s) && s.Phase == engine.PhaseIdle {
		w.row("", "retry the plan with: system-agent retry%s", sourceOption(s.Source))
	}
	if p := s.Progress; p != nil {
		w.row("Progress", "%s", progressText(*p, w.now))
	}
	w.plan(s)
	switch {
	case s.SourceError != "" && s.Source != engine.HubName:
		w.row("File", "INVALID since %s: %s", since(s.SourceErrorSince, w.now), s.SourceError)
	case s.SourceError != "":
		w.row("Hub", "UNREACHABLE since %s: %s", since(s.SourceErrorSince, w.now), s.SourceError)
	case w.running && s.Source == engine.HubName && s.Contacted:
		w.row("Hub", "connected")
	case w.running && s.Source == engine.HubName:
		w.row("Hub", "not connected yet")
	}
	if s.Last != nil {
		w.attempt(s)
	}
	w.probes(s.Probes)
	w.periodic(s.Periodic)
}

func (w statusWriter) plan(s engine.State) {
	if s.Checksum == "" {
		w.row("Plan", "none delivered yet")
		return
	}
	text := plans.ShortChecksum(s.Checksum)
	if s.PlanState != "" {
		text += ", state " + string(s.PlanState)
	}
	if s.Revision != 0 {
		text += ", revision " + strconv.Itoa(s.Revision)
	}
	w.row("Plan", "%s", text)
}

// stepText names the current step of an attempt: "files", or "running instruction 3 of 5 (install)".
func stepText(p plans.Progress) string {
	text := string(p.Phase)
	if p.Phase != plans.PhaseFiles && p.Phase != "" && p.Total > 0 {
		text += fmt.Sprintf(" instruction %d of %d", p.Index+1, p.Total)
		if p.Name != "" {
			text += " (" + p.Name + ")"
		}
	}
	return text
}

func progressText(p plans.Progress, now time.Time) string {
	text := stepText(p)
	if !p.Since.IsZero() {
		text += " for " + age(p.Since, now)
	}
	switch {
	case p.TotalBytes > 0:
		text += fmt.Sprintf(", pulled %s of %s", humanize.IBytes(uint64(p.PulledBytes)), humanize.IBytes(uint64(p.TotalBytes)))
	case p.PulledBytes > 0:
		text += ", pulled " + humanize.IBytes(uint64(p.PulledBytes))
	}
	if p.OutputBytes > 0 {
		text += ", output " + humanize.IBytes(uint64(p.OutputBytes))
	}
	return text
}

func (w statusWriter) attempt(s engine.State) {
	a := *s.Last
	w.row("Attempt", "%d (try %d), %s", a.Number, a.Try, w.attemptText(a))
	if a.Message != "" {
		w.row("", "%s", firstLine(a.Message))
	}
	if a.RolledBack {
		w.row("", "files rolled back")
	}
	if s.Unreported {
		w.row("", "outcome not reported to the hub yet")
	}
	for _, run := range a.Instructions {
		state := w.runState(a, run)
		w.row("", "%-9s %s, %s", state, runName(run), w.runText(run))
		if state != runFailed {
			continue
		}
		w.row("", "          output: system-agent logs%s --attempt %d --instruction %d", sourceOption(s.Source), a.Number, run.Index)
		if run.RunDir != "" {
			w.row("", "          files: %s", run.RunDir)
		}
	}
}

// sourceOption is the option with which a printed command is about a source; the hub is the default.
func sourceOption(source string) string {
	if source == engine.HubName {
		return ""
	}
	return " --source " + source
}

func (w statusWriter) attemptText(a journal.Attempt) string {
	text := "FAILED "
	switch {
	case a.Ended.IsZero() && w.running:
		text = "running since " + since(a.Started, w.now)
	case a.Ended.IsZero():
		text = "unfinished, started " + since(a.Started, w.now)
	default:
		if a.Succeeded {
			text = "succeeded "
		}
		text += since(a.Ended, w.now) + " after " + age(a.Started, a.Ended)
	}
	if a.Interrupted > 0 {
		text += fmt.Sprintf(", interrupted %d times", a.Interrupted)
	}
	return text
}

// runFailed is the state of an instruction that failed, timed out, or had not ended when its attempt did.
const runFailed = "FAILED"

func (w statusWriter) runState(a journal.Attempt, run journal.InstructionRun) string {
	switch {
	case run.Ended.IsZero() && a.Ended.IsZero() && w.running:
		return "running"
	case run.Ended.IsZero() && a.Ended.IsZero():
		return "started"
	case run.ExitCode != 0 || run.TimedOut || run.Ended.IsZero():
		return runFailed
	}
	return "done"
}

func runName(run journal.InstructionRun) string {
	if run.Name == "" {
		return fmt.Sprintf("instructions[%d]", run.Index)
	}
	return fmt.Sprintf("instructions[%d] (%s)", run.Index, run.Name)
}

func (w statusWriter) runText(run journal.InstructionRun) string {
	took := age(run.Started, run.Ended)
	switch {
	case run.Ended.IsZero():
		return "for " + age(run.Started, w.now)
	case run.TimedOut:
		return "timed out after " + took
	case run.ExitCode != 0:
		return fmt.Sprintf("exit code %d after %s", run.ExitCode, took)
	}
	return "in " + took
}

func (w statusWriter) probes(probes map[string]plans.ProbeStatus) {
	if len(probes) == 0 {
		return
	}
	healthy := 0
	for _, probe := range probes {
		if probe.Healthy {
			healthy++
		}
	}
	w.row("Probes", "%d of %d healthy", healthy, len(probes))
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		if probe := probes[name]; !probe.Healthy {
			w.row("", "UNHEALTHY %s, %d consecutive failures", name, probe.FailureCount)
		}
	}
}

func (w statusWriter) periodic(periodic map[string]engine.Periodic) {
	title := "Periodic"
	for _, name := range slices.Sorted(maps.Keys(periodic)) {
		p := periodic[name]
		text := "not run yet"
		switch {
		case p.Failures > 0:
			text = fmt.Sprintf("FAILED, %d consecutive failures, exit code %d, last %s ago", p.Failures, p.ExitCode, age(p.LastFailure, w.now))
		case !p.LastSuccess.IsZero():
			text = "succeeded " + age(p.LastSuccess, w.now) + " ago"
		}
		switch {
		case p.Running:
			text += ", running"
		case !p.Next.IsZero():
			text += ", next " + timeUntil(p.Next, w.now)
		}
		w.row(title, "%s %s", name, text)
		title = ""
	}
}
