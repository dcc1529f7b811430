package cli

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/printable"
	"github.com/drover-dev/drover/plans"
)

// planOutput is the output of `plan show -o json`.
type planOutput struct {
	Source   string     `json:"source"`
	Checksum string     `json:"checksum"`
	Bytes    int        `json:"bytes"`
	Plan     plans.Plan `json:"plan"`
}

func newPlanShow() *cobra.Command {
	var t target
	var out format
	visible := visibleFields{args: true}
	var raw bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the delivered plan",
		Long: `Show the delivered plan. Contents of files, scripts and values of environment variables may be secrets and are hidden by default.
Arguments of instructions are shown.`,
		Example: "  system-agent plan show\n  system-agent plan show --content --env\n  system-agent plan show --raw | sha256sum",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, state, err := t.inspectSource(cmd.Context())
			if err != nil {
				return err
			}
			text, err := v.plan(cmd.Context(), state)
			if err != nil {
				return err
			}
			if raw {
				_, err := cmd.OutOrStdout().Write(text)
				return err
			}
			plan, err := plans.Decode(text)
			if err != nil {
				return err
			}
			output := planOutput{Source: state.Source, Checksum: plans.Checksum(text), Bytes: len(text), Plan: newRedactor().plan(plan, visible)}
			return out.print(cmd.OutOrStdout(), output, func(w io.Writer) { writePlan(w, output, visible) })
		},
	}
	t.flags(cmd)
	t.sourceFlag(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&visible.content, "content", false, "show contents of files and scripts, which may be secrets")
	cmd.Flags().BoolVar(&visible.env, "env", false, "show values of environment variables, which may be secrets")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the plan byte for byte, secrets included")
	return cmd
}

func writePlan(w io.Writer, p planOutput, visible visibleFields) {
	fmt.Fprintf(w, "Plan %s from %s, %s\n", p.Checksum, p.Source, humanize.IBytes(uint64(p.Bytes)))
	section := func(title string, n int) {
		if n > 0 {
			fmt.Fprintf(w, "\n%s\n", title)
		}
	}
	section("Files", len(p.Plan.Files))
	for _, file := range p.Plan.Files {
		writeFile(w, file, visible.content)
	}
	section("Instructions", len(p.Plan.Instructions))
	for i, instruction := range p.Plan.Instructions {
		writeInstruction(w, i, instruction.CommonInstruction)
	}
	section("Periodic instructions", len(p.Plan.PeriodicInstructions))
	for i, instruction := range p.Plan.PeriodicInstructions {
		writeInstruction(w, i, instruction.CommonInstruction)
		fmt.Fprintf(w, "      every    %d s\n", cmp.Or(instruction.PeriodSeconds, plans.DefaultPeriodSeconds))
	}
	section("Probes", len(p.Plan.Probes))
	for _, name := range slices.Sorted(maps.Keys(p.Plan.Probes)) {
		fmt.Fprintf(w, "  %s  %s\n", name, p.Plan.Probes[name].HTTPGet.URL)
	}
}

func writeFile(w io.Writer, file plans.File, content bool) {
	kind := "file     "
	if file.Directory {
		kind = "directory"
	}
	if file.Action == plans.ActionDelete {
		fmt.Fprintf(w, "  delete %s %s\n", kind, file.Path)
		return
	}
	mode := "(invalid permissions)"
	if bits, err := file.Mode(); err == nil {
		mode = fmt.Sprintf("%04o", bits)
	}
	fmt.Fprintf(w, "  %s %s %d:%d %s\n", kind, mode, file.UID, file.GID, file.Path)
	switch {
	case file.Directory:
	case !content:
		fmt.Fprintf(w, "      content  %s\n", cmp.Or(file.Content, "empty"))
	default:
		writeContent(w, file.Content)
	}
}

func writeContent(w io.Writer, encoded string) {
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		fmt.Fprintf(w, "      content  is not base64: %v\n", err)
		return
	}
	for line := range strings.Lines(printable.Text(string(content))) {
		fmt.Fprintf(w, "      | %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func writeInstruction(w io.Writer, index int, i plans.CommonInstruction) {
	fmt.Fprintf(w, "  %d %s\n", index, cmp.Or(i.Name, "(no name)"))
	line := func(title, value string) {
		if value != "" {
			fmt.Fprintf(w, "      %-8s %s\n", title, printable.Text(value))
		}
	}
	line("image", i.Image)
	if i.Script == "" {
		args, _ := json.Marshal(i.Args)
		line("command", strings.TrimSpace(cmp.Or(i.Command, "run.sh of the image")+" "+strings.TrimPrefix(string(args), "null")))
	}
	title := "script"
	for text := range strings.Lines(i.Script) {
		line(title, strings.TrimSuffix(text, "\n"))
		title = ""
	}
	for _, pair := range i.Env {
		line("env", pair)
	}
	if i.TimeoutSeconds > 0 {
		line("timeout", fmt.Sprintf("%d s", i.TimeoutSeconds))
	}
}
