package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/plans"
)

// statusOutput is the output of `status -o json`.
type statusOutput struct {
	Running bool `json:"running"`
	// NotRunning is why the rest was read from the state directory; empty while the agent runs.
	NotRunning string `json:"notRunning,omitempty"`
	control.Status
	// Attention lists what needs attention; the exit code is 3 if it is not empty.
	Attention []string `json:"attention"`
}

func newStatus() *cobra.Command {
	var t target
	var out format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of the agent",
		Long: `Show the status of the agent: its plan, the last attempt, where to find the output of a failed instruction, probes, periodic
instructions, the connection to the hub, and an upgrade of the agent. If no agent runs, the status is read from the state directory.

Exit codes: 0 healthy; 3 the machine needs attention: no agent runs, the plan failed or was refused, a probe is unhealthy, or the hub is
unreachable; 1 the status is not available.`,
		Example: "  system-agent status\n  system-agent status -o json | jq -r '.attention[]'\n  watch system-agent status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := t.inspect(cmd.Context())
			if err != nil {
				return err
			}
			output := v.statusOutput()
			if err := out.print(cmd.OutOrStdout(), output, func(w io.Writer) { writeStatus(w, output, time.Now()) }); err != nil {
				return err
			}
			if len(output.Attention) > 0 {
				return exitCode(exitAttention)
			}
			return nil
		},
	}
	t.flags(cmd)
	out.flags(cmd)
	return cmd
}

func (v *view) statusOutput() statusOutput {
	output := statusOutput{Running: v.notRunning == nil, Status: v.status, Attention: []string{}}
	if v.notRunning != nil {
		output.NotRunning = v.notRunning.Error()
		output.ConfigFile = ""
		output.Attention = append(output.Attention, v.notRunning.Error())
	}
	for _, state := range v.status.Sources {
		output.Attention = append(output.Attention, attention(state)...)
	}
	return output
}

// attention lists what needs attention about a source.
func attention(s engine.State) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, s.Source+": "+fmt.Sprintf(format, args...)) }
	switch {
	case s.Phase == engine.PhaseRefusing:
		add("plan refused: %s", s.Reason)
	case failed(s):
		add("plan failed: %s", firstLine(s.Last.Message))
	case s.PlanState == plans.StateFailed:
		add("plan failed")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Probes)) {
		if !s.Probes[name].Healthy {
			add("probe %s is unhealthy", name)
		}
	}
	switch {
	case s.SourceError != "" && s.Source == engine.HubName:
		add("hub unreachable: %s", s.SourceError)
	case s.SourceError != "":
		add("plan file invalid: %s", s.SourceError)
	}
	return out
}

// failed is true if the last attempt is one of the current plan, has ended and failed.
func failed(s engine.State) bool {
	return s.Last != nil && !s.Last.Ended.IsZero() && !s.Last.Succeeded && (s.Checksum == "" || s.Last.Checksum == s.Checksum)
}
