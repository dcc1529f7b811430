package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/preview"
	"github.com/drover-dev/drover/plans"
)

// diffAnswer is what `plan diff -o json` prints.
type diffAnswer struct {
	Checksum string `json:"checksum"`
	// Delivered is what differs from the delivered plan, by name; empty where there is none to compare with, or the same.
	Delivered string `json:"delivered,omitempty"`
	// Applied is set when the machine has applied this very plan, so that no instruction runs.
	Applied bool           `json:"applied"`
	Files   []preview.File `json:"files"`
	// Instructions are those that would run.
	Instructions []diffInstruction `json:"instructions"`
}

type diffInstruction struct {
	Index   int    `json:"index"`
	Name    string `json:"name,omitempty"`
	Image   string `json:"image,omitempty"`
	Command string `json:"command,omitempty"`
}

func newPlanDiff() *cobra.Command {
	var where place
	var out format
	var source string
	var noContent, code bool
	cmd := &cobra.Command{
		Use:   "diff [plan file]",
		Short: "Show what a plan would change on this machine",
		Long: `Show which files of a plan differ from those on this machine, in mode, owner and content, and which instructions would run. Nothing
is changed.

Without an argument it is the delivered plan: what it shows is how the machine has drifted away from it. With a plan file ("-" is the
standard input) it is that plan; no agent and no hub is needed. A new plan runs all of its instructions, also those that the former plan
had.

Contents of files are shown and may be secrets.

Exit codes: with --exit-code, 3 when something would change.`,
		Example: "  system-agent plan diff\n  system-agent plan diff new-plan.json\n  system-agent plan diff --no-content --exit-code",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := where.diff(cmd, source, args)
			if err != nil {
				return err
			}
			if noContent {
				for i := range answer.Files {
					answer.Files[i].Diff = ""
				}
			}
			if err := out.print(cmd.OutOrStdout(), answer, func(w io.Writer) { writeDiff(w, answer) }); err != nil {
				return err
			}
			if code && answer.changes() {
				return exit(exitAttention)
			}
			return nil
		},
	}
	where.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&source, "source", "", "source of the plan: hub, or the name of a local plan (default: hub, or the only one)")
	cmd.Flags().BoolVar(&noContent, "no-content", false, "do not show contents of files")
	cmd.Flags().BoolVar(&code, "exit-code", false, "end with exit code 3 when something would change")
	return cmd
}

func (p *place) diff(cmd *cobra.Command, source string, args []string) (diffAnswer, error) {
	state, delivered, err := p.delivered(cmd, source)
	raw := delivered
	if len(args) == 1 {
		raw, err = readPlanFile(args[0], cmd.InOrStdin())
	}
	if err != nil {
		return diffAnswer{}, err
	}
	plan, err := plans.Decode(raw)
	if err == nil {
		err = plan.Validate()
	}
	if err != nil {
		return diffAnswer{}, err
	}
	answer := diffAnswer{Checksum: plans.Checksum(raw), Files: preview.Files(host.Machine{}, plan.Files), Instructions: []diffInstruction{}}
	answer.Applied = state.Last != nil && state.Last.Checksum == answer.Checksum && state.Last.Succeeded
	if former, err := plans.Decode(delivered); err == nil && len(args) == 1 {
		answer.Delivered = plans.Diff(former, plan).String()
	}
	if !answer.Applied {
		for i, one := range plan.Instructions {
			command := one.Command
			if one.Script != "" {
				command = "(script)"
			}
			answer.Instructions = append(answer.Instructions, diffInstruction{Index: i, Name: one.Name, Image: one.Image, Command: command})
		}
	}
	return answer, nil
}

// delivered gives the state and the delivered plan. Where a plan file is looked at, neither is needed, so the error may be dropped.
func (p *place) delivered(cmd *cobra.Command, source string) (engine.State, []byte, error) {
	v, err := p.look(cmd.Context())
	if err != nil {
		return engine.State{}, nil, err
	}
	state, err := v.source(source)
	if err != nil {
		return engine.State{}, nil, err
	}
	raw, err := v.plan(cmd.Context(), state)
	if v.Down != nil && err != nil {
		err = errors.Join(v.Down, err)
	}
	return state, raw, err
}

func (a diffAnswer) changes() bool {
	for _, file := range a.Files {
		if file.Kind != preview.Unchanged {
			return true
		}
	}
	return len(a.Instructions) > 0
}

var diffWords = map[preview.Kind]string{
	preview.Create: "+ create", preview.Change: "~ change", preview.Replace: "~ replace", preview.Delete: "- delete", preview.Fail: "! FAILS",
}

func writeDiff(w io.Writer, a diffAnswer) {
	fmt.Fprintf(w, "Plan %s\n", a.Checksum)
	if a.Delivered != "" {
		fmt.Fprintf(w, "against the delivered plan: %s\n", a.Delivered)
	}
	fmt.Fprintln(w)
	same := 0
	for _, file := range a.Files {
		if file.Kind == preview.Unchanged {
			same++
			continue
		}
		notes := ""
		if len(file.Notes) > 0 {
			notes = " (" + strings.Join(file.Notes, "; ") + ")"
		}
		fmt.Fprintf(w, "%s %s%s\n", diffWords[file.Kind], file.Path, notes)
		for line := range strings.Lines(file.Diff) {
			fmt.Fprintf(w, "    %s\n", strings.TrimSuffix(printable(line), "\n"))
		}
	}
	fmt.Fprintf(w, "%d of %d files are as the plan wants them\n", same, len(a.Files))
	switch {
	case a.Applied:
		fmt.Fprintln(w, "no instruction runs: the plan is applied; files that differ are left as they are until the plan changes")
	case len(a.Instructions) == 0:
		fmt.Fprintln(w, "no instruction runs: the plan has none")
	}
	for _, one := range a.Instructions {
		what := one.Command
		if one.Image != "" {
			what = strings.TrimSpace(what + " of the image " + one.Image)
		}
		fmt.Fprintf(w, "> run instructions[%d] %s: %s\n", one.Index, one.Name, orWord(what, "run.sh"))
	}
}
