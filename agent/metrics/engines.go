// Package metrics tells operators how the agent is: metrics for Prometheus and two health checks over HTTP, on a loopback address or a
// socket. It reads what the engines say of themselves when it is asked, and keeps nothing. It holds no content of plans and no output.
package metrics

import (
	"time"

	"github.com/drover-dev/drover/agent/engine"
)

// Engine is what is asked.
type Engine interface {
	State() engine.State
	Alive(now time.Time) bool
}

// Engines are those that exist at the moment; local plans come and go.
type Engines func() []Engine

// doings has a series each from the beginning, so that one that never was is 0 and not absent.
var doings = []engine.Doing{engine.DoingNothing, engine.DoingApply, engine.DoingWait, engine.DoingPaused, engine.DoingCanceled, engine.DoingRefuse}

// engines adds what every engine says of itself.
func (p *Page) engines(engines []Engine, now time.Time) {
	seen := map[string]bool{}
	for _, e := range engines {
		s := e.State()
		if seen[s.Source] {
			continue // two samples of one name would spoil the whole page
		}
		seen[s.Source] = true
		p.add(gauge, "system_agent_alive", "Whether the executor of a source answers (1) or hangs (0).", truth(e.Alive(now)), "source", s.Source)
		p.state(s)
		p.last(s.Source, s.Last)
		p.counters(s.Source, s.Counters)
		p.connections(s.Source, s.Connections)
		p.plan(s)
	}
}

func (p *Page) state(s engine.State) {
	p.add(gauge, "system_agent_source_connected", "Whether a source can be reached.", truth(s.SourceError == "" && s.Contacted), "source", s.Source)
	if s.SourceError != "" {
		p.Since("system_agent_source_error_since_timestamp_seconds", "Since when a source cannot be reached; absent while it can.",
			s.SourceErrorSince, "source", s.Source)
	}
	if s.Checksum != "" {
		p.add(gauge, "system_agent_plan_info", "The plan that was delivered last; always 1.", 1,
			"source", s.Source, "checksum", s.Checksum, "state", string(s.PlanState))
	}
	p.add(gauge, "system_agent_plan_revision", "How often the execution of a plan was started, as the hub counts it.", float64(s.Revision),
		"source", s.Source)
	for _, doing := range doings {
		p.add(gauge, "system_agent_doing", "What is done at the moment: 1 for that one.", truth(s.Doing == doing),
			"source", s.Source, "doing", string(doing))
	}
	p.add(gauge, "system_agent_outcome_unreported", "Whether the hub does not know yet how the last attempt ended.", truth(s.Unreported),
		"source", s.Source)
}

func (p *Page) last(source string, last *engine.Attempt) {
	if last == nil {
		return
	}
	p.add(gauge, "system_agent_last_attempt_number", "Number of the attempt that ended last, or goes on.", float64(last.Number), "source", source)
	p.Since("system_agent_last_attempt_start_timestamp_seconds", "When that attempt started.", last.Started, "source", source)
	if !last.Ended.IsZero() {
		p.Since("system_agent_last_attempt_end_timestamp_seconds", "When that attempt ended; absent while it goes on.", last.Ended, "source", source)
		p.add(gauge, "system_agent_last_attempt_succeeded", "Whether that attempt succeeded; absent while it goes on.", truth(last.Succeeded),
			"source", source)
	}
}

func (p *Page) counters(source string, c engine.Counters) {
	p.outcomes("system_agent_attempts_total", "Attempts at plans that have ended.", source, c.AttemptsSucceeded, c.AttemptsFailed)
	p.add(counter, "system_agent_attempt_seconds_total", "Time that attempts at plans have taken.", c.AttemptSecondsTotal, "source", source)
	p.add(counter, "system_agent_instructions_total", "Instructions that were started.", float64(c.InstructionsRun), "source", source)
	p.add(counter, "system_agent_instructions_resumed_total", "Instructions that went on while the agent was away and were picked up.",
		float64(c.InstructionsResumed), "source", source)
	p.outcomes("system_agent_reports_total", "Reports to the hub.", source, c.ReportsSent, c.ReportsFailed)
	p.outcomes("system_agent_periodic_runs_total", "Runs of periodic instructions.", source, c.PeriodicRuns-c.PeriodicFailures, c.PeriodicFailures)
	p.outcomes("system_agent_probe_checks_total", "Answers of probes.", source, c.ProbeChecks-c.ProbeFailures, c.ProbeFailures)
}

func (p *Page) connections(source string, c *engine.Connections) {
	if c == nil {
		return
	}
	p.add(counter, "system_agent_reconnects_total", "How often the connection to the hub was begun anew because something failed.",
		float64(c.Reconnects), "source", source)
	p.outcomes("system_agent_registrations_total", "Registrations by the stored identity, after the hub had refused the token.", source,
		c.Registrations, c.RegistrationsFailed)
	p.add(counter, "system_agent_authorities_replaced_total", "How often the hub's certificate authorities were replaced.",
		float64(c.AuthoritiesReplaced), "source", source)
}

func (p *Page) outcomes(name, help, source string, succeeded, failed int64) {
	p.add(counter, name, help, float64(max(succeeded, 0)), "source", source, "outcome", "success")
	p.add(counter, name, help, float64(failed), "source", source, "outcome", "failure")
}

func (p *Page) plan(s engine.State) {
	for name, status := range s.Probes {
		p.add(gauge, "system_agent_probe_healthy", "Whether a probe of the plan is healthy.", truth(status.Healthy), "source", s.Source, "probe", name)
	}
	for name, periodic := range s.Periodic {
		p.add(gauge, "system_agent_periodic_consecutive_failures", "Failures in a row of a periodic instruction.", float64(periodic.Failures),
			"source", s.Source, "instruction", name)
		p.Since("system_agent_periodic_last_success_timestamp_seconds", "When a periodic instruction succeeded last.", periodic.LastSuccess,
			"source", s.Source, "instruction", name)
	}
}
