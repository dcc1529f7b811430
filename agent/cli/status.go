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

// statusAnswer is what `status -o json` prints.
type statusAnswer struct {
	Running bool `json:"running"`
	// NotRunning is why the rest comes from the state directory.
	NotRunning string `json:"notRunning,omitempty"`
	control.Status
	// Attention lists what somebody should look at; the exit code is 3 when it is not empty.
	Attention []string `json:"attention"`
}

func newStatus() *cobra.Command {
	var where place
	var out format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the agent does and why",
		Long: `Show what the agent does and why: its plan, the last attempt and where the output of what failed is, probes, periodic
instructions, and whether the hub can be reached.

When no agent runs, it shows what the state directory tells.

Exit codes: 0 all is well; 3 somebody should look at the machine: no agent runs, the plan has failed or is refused, a probe is
unhealthy, or the hub cannot be reached; 1 the question could not be answered.`,
		Example: "  system-agent status\n  system-agent status -o json | jq -r '.attention[]'\n  watch system-agent status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := where.look(cmd.Context())
			if err != nil {
				return err
			}
			answer := v.answer()
			if err := out.print(cmd.OutOrStdout(), answer, func(w io.Writer) { writeStatus(w, answer, time.Now()) }); err != nil {
				return err
			}
			if len(answer.Attention) > 0 {
				return exit(exitAttention)
			}
			return nil
		},
	}
	where.flags(cmd)
	out.flags(cmd)
	return cmd
}

func (v *view) answer() statusAnswer {
	answer := statusAnswer{Running: v.Down == nil, Status: v.Status, Attention: []string{}}
	if v.Down != nil {
		answer.NotRunning = v.Down.Error()
		answer.ConfigFile = ""
		answer.Attention = append(answer.Attention, v.Down.Error())
	}
	for _, state := range v.Status.Sources {
		answer.Attention = append(answer.Attention, attention(state)...)
	}
	return answer
}

// attention says what somebody should look at.
func attention(s engine.State) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, s.Source+": "+fmt.Sprintf(format, args...)) }
	switch {
	case s.Doing == engine.DoingRefuse:
		say("the plan is refused: %s", s.Reason)
	case failed(s):
		say("the plan has failed: %s", firstLine(s.Last.Message))
	case s.PlanState == plans.StateFailed:
		say("the plan has failed")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Probes)) {
		if !s.Probes[name].Healthy {
			say("the probe %s is unhealthy", name)
		}
	}
	switch {
	case s.SourceError != "" && s.Source == hubName:
		say("the hub cannot be reached: %s", s.SourceError)
	case s.SourceError != "":
		say("the plan file cannot be used: %s", s.SourceError)
	}
	return out
}

// failed tells whether the attempt that ended last is one of the present plan, and failed.
func failed(s engine.State) bool {
	return s.Last != nil && !s.Last.Ended.IsZero() && !s.Last.Succeeded && (s.Checksum == "" || s.Last.Checksum == s.Checksum)
}
