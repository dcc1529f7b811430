// Package metrics serves metrics for Prometheus, /healthz and /readyz, on a loopback address or a unix socket. It reads the state of the
// engines at each request and keeps nothing. No metric contains content of plans or output.
package metrics

import (
	"time"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/source"
)

// Engine is what is used of an *engine.Engine, which documents the methods.
type Engine interface {
	State() engine.State
	Alive(now time.Time) bool
}

// Engines returns the engines of all sources. It is called for each request, since local plans are added and removed.
type Engines func() []Engine

// phases each have a series from the start, so that one that never occurred is 0 and not absent.
var phases = []engine.Phase{engine.PhaseIdle, engine.PhaseApplying, engine.PhaseWaiting, engine.PhasePaused, engine.PhaseCanceled,
	engine.PhaseRefusing}

// engines adds the metrics of each engine.
func (p *Page) engines(engines []Engine, now time.Time) {
	seen := map[string]bool{}
	for _, e := range engines {
		s := e.State()
		if seen[s.Source] {
			continue // a duplicate sample would make the whole page invalid
		}
		seen[s.Source] = true
		m := sourceMetrics{p, s.Source}
		m.flag("system_agent_alive", "Whether the engine of a source responds (1) or hangs (0).", e.Alive(now))
		m.state(s)
		m.lastAttempt(s.Last)
		m.counters(s.Counters)
		m.connections(s.Connections)
		m.plan(s)
	}
}

// sourceMetrics adds metrics with the label source.
type sourceMetrics struct {
	page   *Page
	source string
}

func (m sourceMetrics) labels(others []string) []string {
	return append([]string{"source", m.source}, others...)
}

func (m sourceMetrics) gauge(name, help string, value float64, labels ...string) {
	m.page.Gauge(name, help, value, m.labels(labels)...)
}

func (m sourceMetrics) flag(name, help string, value bool, labels ...string) {
	number := 0.0
	if value {
		number = 1
	}
	m.gauge(name, help, number, labels...)
}

func (m sourceMetrics) timestamp(name, help string, at time.Time, labels ...string) {
	m.page.Timestamp(name, help, at, m.labels(labels)...)
}

func (m sourceMetrics) counter(name, help string, value float64, labels ...string) {
	m.page.Counter(name, help, value, m.labels(labels)...)
}

func (m sourceMetrics) outcomes(name, help string, succeeded, failed int64) {
	m.counter(name, help, float64(max(succeeded, 0)), "outcome", "success")
	m.counter(name, help, float64(failed), "outcome", "failure")
}

func (m sourceMetrics) state(s engine.State) {
	m.flag("system_agent_source_connected", "Whether a source is reachable.", s.SourceError == "" && s.Contacted)
	if s.SourceError != "" {
		m.timestamp("system_agent_source_error_since_timestamp_seconds",
			"Since when a source is unreachable; absent while it is reachable.", s.SourceErrorSince)
	}
	if s.Checksum != "" {
		m.gauge("system_agent_plan_info", "The plan that was delivered last; always 1.", 1,
			"checksum", s.Checksum, "state", string(s.PlanState))
	}
	m.gauge("system_agent_plan_revision", "Revision of the plan: how often the hub has started its execution.", float64(s.Revision))
	for _, phase := range phases {
		m.flag("system_agent_doing", "Current phase: 1 for that phase, 0 for all others.", s.Phase == phase, "doing", string(phase))
	}
	m.flag("system_agent_outcome_unreported", "Whether the outcome of the last attempt has not been reported to the hub yet.", s.Unreported)
}

func (m sourceMetrics) lastAttempt(last *journal.Attempt) {
	if last == nil {
		return
	}
	m.gauge("system_agent_last_attempt_number", "Number of the last attempt.", float64(last.Number))
	m.timestamp("system_agent_last_attempt_start_timestamp_seconds", "When the last attempt started.", last.Started)
	if !last.Ended.IsZero() {
		m.timestamp("system_agent_last_attempt_end_timestamp_seconds",
			"When the last attempt ended; absent while it is running.", last.Ended)
		m.flag("system_agent_last_attempt_succeeded", "Whether the last attempt succeeded; absent while it is running.", last.Succeeded)
	}
}

func (m sourceMetrics) counters(c engine.Counters) {
	m.outcomes("system_agent_attempts_total", "Attempts at plans that have ended.", c.AttemptsSucceeded, c.AttemptsFailed)
	m.counter("system_agent_attempt_seconds_total", "Duration of all attempts at plans.", c.AttemptSecondsTotal)
	m.counter("system_agent_instructions_total", "Instructions that were started.", float64(c.InstructionsRun))
	m.counter("system_agent_instructions_resumed_total", "Instructions that a previous process of the agent had started.",
		float64(c.InstructionsResumed))
	m.outcomes("system_agent_reports_total", "Reports to the hub.", c.ReportsSent, c.ReportsFailed)
	m.outcomes("system_agent_periodic_runs_total", "Runs of periodic instructions.", c.PeriodicRuns-c.PeriodicFailures, c.PeriodicFailures)
	m.outcomes("system_agent_probe_checks_total", "Checks of probes.", c.ProbeChecks-c.ProbeFailures, c.ProbeFailures)
}

func (m sourceMetrics) connections(c *source.Connections) {
	if c == nil {
		return
	}
	m.counter("system_agent_reconnects_total", "Reconnections to the hub after a failure.", float64(c.Reconnects))
	m.outcomes("system_agent_registrations_total", "Registrations with the stored identity, after the hub had refused the token.",
		c.Registrations, c.RegistrationsFailed)
	m.counter("system_agent_authorities_replaced_total", "Replacements of the hub's certificate authorities.",
		float64(c.AuthoritiesReplaced))
}

func (m sourceMetrics) plan(s engine.State) {
	for name, status := range s.Probes {
		m.flag("system_agent_probe_healthy", "Whether a probe of the plan is healthy.", status.Healthy, "probe", name)
	}
	for name, periodic := range s.Periodic {
		m.gauge("system_agent_periodic_consecutive_failures", "Consecutive failures of a periodic instruction.", float64(periodic.Failures),
			"instruction", name)
		m.timestamp("system_agent_periodic_last_success_timestamp_seconds", "When a periodic instruction last succeeded.",
			periodic.LastSuccess, "instruction", name)
	}
}
