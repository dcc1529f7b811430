package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/plans"
)

func writeStatus(out io.Writer, answer statusAnswer, now time.Time) {
	var w strings.Builder
	defer func() {
		for line := range strings.Lines(w.String()) {
			fmt.Fprintln(out, strings.TrimRight(line, " \n"))
		}
	}()
	table := tabwriter.NewWriter(&w, 0, 0, 2, ' ', 0)
	row := func(title, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", title, fmt.Sprintf(format, args...))
	}
	if answer.Running {
		row("Agent", "running %s, process %d, for %s", answer.Version, answer.PID, span(now.Sub(answer.Started)))
		row("Config", "%s", answer.ConfigFile)
	} else {
		row("Agent", "NOT RUNNING: %s", answer.NotRunning)
		row("", "systemctl status rancher-system-agent tells why; what follows is from %s", answer.StateDirectory)
	}
	for _, state := range answer.Sources {
		row("", "")
		writeSource(row, state, answer.Running, now)
	}
	if len(answer.Sources) == 0 {
		row("Plan", "none has come yet")
	}
	_ = table.Flush()
}

func writeSource(row func(title, format string, args ...any), s engine.State, running bool, now time.Time) {
	title := "Source"
	if s.Machine != "" {
		row(title, "%s, plan Secret %s", s.Source, s.Machine)
	} else {
		row(title, "%s", s.Source)
	}
	doing := strings.ToUpper(string(s.Doing))
	if s.Reason != "" {
		doing += ": " + s.Reason
	}
	if !s.NextTry.IsZero() {
		doing += ", next try " + until(s.NextTry, now)
	}
	if running || s.Reason != "" {
		row("Now", "%s", doing)
	}
	if running && failed(s) && s.Doing == engine.DoingNothing {
		row("", "system-agent retry tries the plan again")
	}
	if p := s.Progress; p != nil {
		row("Progress", "%s", progressText(*p, now))
	}
	writePlanLine(row, s)
	switch {
	case s.SourceError != "" && s.Source != hubName:
		row("File", "NOT USED since %s (%s ago): %s", clock(s.SourceErrorSince, now), span(now.Sub(s.SourceErrorSince)), s.SourceError)
	case s.SourceError != "":
		row("Hub", "NOT REACHED since %s (%s ago): %s", clock(s.SourceErrorSince, now), span(now.Sub(s.SourceErrorSince)), s.SourceError)
	case running && s.Source == "hub" && s.Contacted:
		row("Hub", "reached")
	case running && s.Source == "hub":
		row("Hub", "not reached yet")
	}
	if s.Last != nil {
		writeAttempt(row, s, running, now)
	}
	writeProbes(row, s.Probes)
	writePeriodic(row, s.Periodic, now)
}

func writePlanLine(row func(title, format string, args ...any), s engine.State) {
	if s.Checksum == "" {
		row("Plan", "none has come yet")
		return
	}
	text := shortSum(s.Checksum)
	if s.PlanState != "" {
		text += ", state " + string(s.PlanState)
	}
	if s.Revision != 0 {
		text += ", revision " + strconv.Itoa(s.Revision)
	}
	row("Plan", "%s", text)
}

func progressText(p plans.Progress, now time.Time) string {
	text := string(p.Phase)
	if p.Phase != plans.PhaseFiles {
		text += fmt.Sprintf(" instruction %d of %d", p.Index+1, p.Total)
		if p.Name != "" {
			text += " (" + p.Name + ")"
		}
	}
	if !p.Since.IsZero() {
		text += " for " + span(now.Sub(p.Since))
	}
	switch {
	case p.TotalBytes > 0:
		text += fmt.Sprintf(", %s of %s pulled", bytesText(p.PulledBytes), bytesText(p.TotalBytes))
	case p.PulledBytes > 0:
		text += fmt.Sprintf(", %s pulled", bytesText(p.PulledBytes))
	}
	if p.OutputBytes > 0 {
		text += fmt.Sprintf(", %s written", bytesText(p.OutputBytes))
	}
	return text
}

func writeAttempt(row func(title, format string, args ...any), s engine.State, running bool, now time.Time) {
	a := *s.Last
	row("Attempt", "%d (try %d), %s", a.Number, a.Try, attemptText(a, running, now))
	if a.Message != "" {
		row("", "%s", firstLine(a.Message))
	}
	if a.RolledBack {
		row("", "its files were put back")
	}
	if s.Unreported {
		row("", "the hub does not know the outcome yet")
	}
	for _, run := range a.Instructions {
		word := runWord(a, run, running)
		row("", "%-9s %s, %s", word, runName(run), runText(run, now))
		if word != "FAILED" {
			continue
		}
		which := ""
		if s.Source != hubName {
			which = " --source " + s.Source
		}
		row("", "          output: system-agent logs%s --attempt %d --instruction %d", which, a.Number, run.Index)
		if run.Spool != "" {
			row("", "          kept in %s", run.Spool)
		}
	}
}

func attemptText(a engine.Attempt, running bool, now time.Time) string {
	text := ""
	switch {
	case a.Ended.IsZero() && running:
		text = fmt.Sprintf("going on since %s (%s)", clock(a.Started, now), span(now.Sub(a.Started)))
	case a.Ended.IsZero():
		text = fmt.Sprintf("unfinished, begun %s ago (%s)", span(now.Sub(a.Started)), clock(a.Started, now))
	case a.Succeeded:
		text = fmt.Sprintf("succeeded %s ago (%s) after %s", span(now.Sub(a.Ended)), clock(a.Ended, now), span(a.Ended.Sub(a.Started)))
	default:
		text = fmt.Sprintf("FAILED %s ago (%s) after %s", span(now.Sub(a.Ended)), clock(a.Ended, now), span(a.Ended.Sub(a.Started)))
	}
	if a.Interrupted > 0 {
		text += fmt.Sprintf(", interrupted %d times", a.Interrupted)
	}
	return text
}

func runWord(a engine.Attempt, run engine.InstructionRun, running bool) string {
	switch {
	case run.Ended.IsZero() && a.Ended.IsZero() && running:
		return "running"
	case run.Ended.IsZero() && a.Ended.IsZero():
		return "begun"
	case run.ExitCode != 0 || run.TimedOut || run.Ended.IsZero():
		return "FAILED"
	}
	return "done"
}

func runName(run engine.InstructionRun) string {
	if run.Name == "" {
		return fmt.Sprintf("instructions[%d]", run.Index)
	}
	return fmt.Sprintf("instructions[%d] (%s)", run.Index, run.Name)
}

func runText(run engine.InstructionRun, now time.Time) string {
	switch {
	case run.Ended.IsZero():
		return "since " + span(now.Sub(run.Started))
	case run.TimedOut:
		return "stopped because its time was over after " + span(run.Ended.Sub(run.Started))
	case run.ExitCode != 0:
		return fmt.Sprintf("exit code %d after %s", run.ExitCode, span(run.Ended.Sub(run.Started)))
	}
	return "in " + span(run.Ended.Sub(run.Started))
}

func writeProbes(row func(title, format string, args ...any), probes map[string]plans.ProbeStatus) {
	if len(probes) == 0 {
		return
	}
	healthy := 0
	for _, probe := range probes {
		if probe.Healthy {
			healthy++
		}
	}
	row("Probes", "%d of %d healthy", healthy, len(probes))
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		if probe := probes[name]; !probe.Healthy {
			row("", "UNHEALTHY %s, %d failures in a row", name, probe.FailureCount)
		}
	}
}

func writePeriodic(row func(title, format string, args ...any), periodic map[string]engine.Periodic, now time.Time) {
	title := "Periodic"
	for _, name := range slices.Sorted(maps.Keys(periodic)) {
		p := periodic[name]
		text := "has not run yet"
		switch {
		case p.Failures > 0:
			text = fmt.Sprintf("FAILED %d times in a row, exit code %d, last %s ago", p.Failures, p.ExitCode, span(now.Sub(p.LastFailure)))
		case !p.LastSuccess.IsZero():
			text = fmt.Sprintf("succeeded %s ago", span(now.Sub(p.LastSuccess)))
		}
		switch {
		case p.Running:
			text += ", runs now"
		case !p.Next.IsZero():
			text += ", next " + until(p.Next, now)
		}
		row(title, "%s %s", name, text)
		title = ""
	}
}
