package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/preview"
	"github.com/drover-dev/drover/agent/printable"
	"github.com/drover-dev/drover/plans"
)

// maxPlanFileBytes bounds a plan file that is read for a diff.
const maxPlanFileBytes = 64 << 20

// diffOutput is the output of `plan diff -o json`.
type diffOutput struct {
	Checksum string `json:"checksum"`
	// Delivered lists what differs from the delivered plan, by name; empty if there is none to compare with, or if they are the same.
	Delivered string `json:"delivered,omitempty"`
	// Applied is true if the machine has applied this plan, so that no instruction runs.
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
	var t target
	var out format
	var noContent, useExitCode bool
	cmd := &cobra.Command{
		Use:   "diff [plan file]",
		Short: "Show what a plan would change",
		Long: `Show which files on this machine differ from those of a plan in mode, owner and content, and which instructions would run. Nothing
is changed.

Without an argument, the delivered plan is compared: the differences are drift. With a plan file ("-" is standard input), that plan is
compared; this needs neither agent nor hub. A new plan runs all of its instructions, including those of the previous plan.

Contents of files are shown and may be secrets.

Exit codes: with --exit-code, 3 if the plan would change something.`,
		Example: "  system-agent plan diff\n  system-agent plan diff new-plan.json\n  system-agent plan diff --no-content --exit-code",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			output, err := t.diff(cmd, args)
			if err != nil {
				return err
			}
			if noContent {
				for i := range output.Files {
					output.Files[i].Diff = ""
				}
			}
			if err := out.print(cmd.OutOrStdout(), output, func(w io.Writer) { writeDiff(w, output) }); err != nil {
				return err
			}
			if useExitCode && output.changes() {
				return exitCode(exitAttention)
			}
			return nil
		},
	}
	t.flags(cmd)
	t.sourceFlag(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&noContent, "no-content", false, "hide contents of files")
	cmd.Flags().BoolVar(&useExitCode, "exit-code", false, "exit with code 3 if the plan would change something")
	return cmd
}

func (t *target) diff(cmd *cobra.Command, args []string) (diffOutput, error) {
	// With a plan file neither the state nor the delivered plan is needed, so the error is dropped then.
	state, delivered, err := t.delivered(cmd)
	raw := delivered
	if len(args) == 1 {
		raw, err = readPlanFile(args[0], cmd.InOrStdin())
	}
	if err != nil {
		return diffOutput{}, err
	}
	plan, err := plans.Decode(raw)
	if err == nil {
		err = plan.Validate()
	}
	if err != nil {
		return diffOutput{}, err
	}
	if field := plans.UnknownField(raw); field != "" && len(args) == 1 {
		fmt.Fprintf(cmd.ErrOrStderr(), "Warning: the plan has a field %q, which the agent does not know; it has no effect.\n", field)
	}
	output := diffOutput{Checksum: plans.Checksum(raw), Files: preview.Files(host.Local{}, plan.Files), Instructions: []diffInstruction{}}
	output.Applied = state.Last != nil && state.Last.Checksum == output.Checksum && state.Last.Succeeded
	if previous, err := plans.Decode(delivered); err == nil && len(args) == 1 {
		output.Delivered = plans.Diff(previous, plan).String()
	}
	if !output.Applied {
		for i, one := range plan.Instructions {
			command := one.Command
			if one.Script != "" {
				command = "(script)"
			}
			output.Instructions = append(output.Instructions, diffInstruction{Index: i, Name: one.Name, Image: one.Image, Command: command})
		}
	}
	return output, nil
}

// delivered returns the state of the source and its delivered plan.
func (t *target) delivered(cmd *cobra.Command) (engine.State, []byte, error) {
	v, state, err := t.inspectSource(cmd.Context())
	if err != nil {
		return engine.State{}, nil, err
	}
	raw, err := v.plan(cmd.Context(), state)
	if v.notRunning != nil && err != nil {
		err = errors.Join(v.notRunning, err)
	}
	return state, raw, err
}

// readPlanFile reads a plan from a file; "-" is standard input.
func readPlanFile(path string, stdin io.Reader) ([]byte, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		stdin = file
	}
	return io.ReadAll(io.LimitReader(stdin, maxPlanFileBytes))
}

func (d diffOutput) changes() bool {
	return len(d.Instructions) > 0 || slices.ContainsFunc(d.Files, func(f preview.File) bool { return f.Kind != preview.Unchanged })
}

// diffMarks begin the line of a file.
var diffMarks = map[preview.Kind]string{
	preview.Create: "+ create", preview.Change: "~ change", preview.Replace: "~ replace", preview.Delete: "- delete", preview.Fail: "! FAILS",
}

func writeDiff(w io.Writer, d diffOutput) {
	fmt.Fprintf(w, "Plan %s\n", d.Checksum)
	if d.Delivered != "" {
		fmt.Fprintf(w, "compared with the delivered plan: %s\n", d.Delivered)
	}
	fmt.Fprintln(w)
	unchanged := 0
	for _, file := range d.Files {
		if file.Kind == preview.Unchanged {
			unchanged++
			continue
		}
		notes := ""
		if len(file.Notes) > 0 {
			notes = " (" + strings.Join(file.Notes, "; ") + ")"
		}
		fmt.Fprintf(w, "%s %s%s\n", diffMarks[file.Kind], file.Path, notes)
		for line := range strings.Lines(file.Diff) {
			fmt.Fprintf(w, "    %s\n", strings.TrimSuffix(printable.Text(line), "\n"))
		}
	}
	fmt.Fprintf(w, "%d of %d files are unchanged\n", unchanged, len(d.Files))
	switch {
	case d.Applied:
		fmt.Fprintln(w, "no instruction runs: the plan is applied; changed files are left alone until the plan changes")
	case len(d.Instructions) == 0:
		fmt.Fprintln(w, "no instruction runs: the plan has none")
	}
	for _, one := range d.Instructions {
		command := one.Command
		if one.Image != "" {
			command = strings.TrimSpace(command + " from image " + one.Image)
		}
		fmt.Fprintf(w, "> run instructions[%d] %s: %s\n", one.Index, one.Name, cmp.Or(command, "run.sh"))
	}
}
