package figures

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// AgentRun is what was measured with agents that watch their plans.
type AgentRun struct {
	// Agents and Replicas are their numbers. One replica is a hub with an embedded API server.
	Agents, Replicas int
	// Known is the resident memory of all replicas together, in bytes, when they know all machines and no agent is connected; Resident that
	// with all agents.
	Known, Resident int64
	// ConnectedAfter is how long it took until all agents had their plan, ConnectCPU the processor time of all replicas in it.
	ConnectedAfter, ConnectCPU time.Duration
	// RestCores are the processors in use with all agents connected and nothing to do.
	RestCores float64
	// Changed is how many plans were changed at once, ChangedAfter how long it took until the last agent had its new plan.
	Changed      int
	ChangedAfter time.Duration
	// BackAfter is how long all agents took to connect again after the hub was asked to restart, or a replica was killed. Refused is how many
	// of their requests were refused with 429 from then on. ChangedBackAfter is ChangedAfter after the restart, or of changes that began when
	// the replica was killed.
	BackAfter, ChangedBackAfter time.Duration
	Refused                     int64
}

// ForEach is the memory of an agent in bytes.
func (r AgentRun) ForEach() float64 { return float64(r.Resident-r.Known) / float64(max(r.Agents, 1)) }

func agentCells(runs []AgentRun) [][]string {
	lines := [][]string{
		{"agents"}, {"Replicas"}, {"Resident memory without agents"}, {"Resident memory with agents"}, {"Memory for each agent"},
		{"Time until all have their plan"}, {"CPU until then"}, {"CPU at rest"},
		{"Plans changed at once"}, {"Time until the last is received"},
		{"Time until all agents are back"}, {"Requests refused (429)"}, {"Time until changes are received then"},
	}
	for _, r := range runs {
		for i, value := range []string{
			fmt.Sprint(r.Agents), fmt.Sprint(r.Replicas), mebibytes(r.Known), mebibytes(r.Resident), fmt.Sprintf("%.1f KiB", r.ForEach()/1024),
			seconds(r.ConnectedAfter.Seconds()), seconds(r.ConnectCPU.Seconds()), cores(r.RestCores),
			fmt.Sprint(r.Changed), seconds(r.ChangedAfter.Seconds()),
			seconds(r.BackAfter.Seconds()), fmt.Sprint(r.Refused), seconds(r.ChangedBackAfter.Seconds()),
		} {
			lines[i] = append(lines[i], value)
		}
	}
	return lines
}

// AgentTable shows all runs, for a terminal.
func AgentTable(runs []AgentRun) string { return align(agentCells(runs)) }

const agentIntroduction = `# Agents

What a hub needs for agents that watch their plans, as ` + "`bin/scale agents`" + ` has measured it. Agents use the agent's own client and run in one
other process, each with connections of its own. They have a plan Secret, a ServiceAccount and a token each, as a registered machine has,
and no Machine. They connect as fast as they get their plans, 500 at the same time.

- Memory for each agent: the difference of the resident memory with and without agents, at rest.
- All agents are back: after the restart of a hub with an embedded API server, counted from the signal on, or after one replica was killed.
- Changes are received then: of plans that are changed when all agents are back after a restart, or when a replica is killed.
- Replicas have an API server in another process, and a load balancer before them that chooses a replica for each connection by chance.
`

// WriteAgents writes the report of runs with agents as Markdown to a file. when and machine say when and on what was measured.
func WriteAgents(path string, runs []AgentRun, when time.Time, machine string) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\nMeasured on %s on %s.\n\n", agentIntroduction, when.Format("2 January 2006, 15:04 MST"), machine)
	out.WriteString(markdownTable(agentCells(runs)))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(out.String()), 0o644)
}
