package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/plans"
)

func newPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Look at the plan of this machine",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPlanShow(), newPlanDiff())
	return cmd
}

// planAnswer is what `plan show -o json` prints.
type planAnswer struct {
	Source   string     `json:"source"`
	Checksum string     `json:"checksum"`
	Bytes    int        `json:"bytes"`
	Plan     plans.Plan `json:"plan"`
}

func newPlanShow() *cobra.Command {
	var where place
	var out format
	var show shown
	var source string
	var raw bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the plan as it was delivered",
		Long: `Show the plan as it was delivered. Contents of files, scripts and values of environment variables may be secrets and are hidden
unless they are asked for. Arguments of instructions are shown.`,
		Example: "  system-agent plan show\n  system-agent plan show --content --env\n  system-agent plan show --raw | sha256sum",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, text, err := where.deliveredPlan(cmd.Context(), source)
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
			show.args = true
			answer := planAnswer{Source: name, Checksum: plans.Checksum(text), Bytes: len(text), Plan: newRedaction().plan(plan, show)}
			return out.print(cmd.OutOrStdout(), answer, func(w io.Writer) { writePlan(w, answer, show) })
		},
	}
	where.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&source, "source", "", "source of the plan: hub, or the name of a local plan (default: hub, or the only one)")
	cmd.Flags().BoolVar(&show.content, "content", false, "show contents of files and scripts, which may be secrets")
	cmd.Flags().BoolVar(&show.env, "env", false, "show values of environment variables, which may be secrets")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the plan byte for byte, with everything that is in it")
	return cmd
}

// deliveredPlan gives a source's name and the plan that it delivered last.
func (p *place) deliveredPlan(ctx context.Context, source string) (string, []byte, error) {
	v, err := p.look(ctx)
	if err != nil {
		return "", nil, err
	}
	state, err := v.source(source)
	if err != nil {
		return "", nil, err
	}
	raw, err := v.plan(ctx, state)
	return state.Source, raw, err
}

func writePlan(w io.Writer, a planAnswer, show shown) {
	fmt.Fprintf(w, "Plan %s of %s, %s\n", a.Checksum, a.Source, bytesText(int64(a.Bytes)))
	section := func(title string, n int) {
		if n > 0 {
			fmt.Fprintf(w, "\n%s\n", title)
		}
	}
	section("Files", len(a.Plan.Files))
	for _, file := range a.Plan.Files {
		writeFile(w, file, show.content)
	}
	section("Instructions", len(a.Plan.Instructions))
	for i, one := range a.Plan.Instructions {
		writeInstruction(w, i, one.CommonInstruction)
	}
	section("Periodic instructions", len(a.Plan.PeriodicInstructions))
	for i, one := range a.Plan.PeriodicInstructions {
		writeInstruction(w, i, one.CommonInstruction)
		period := one.PeriodSeconds
		if period == 0 {
			period = plans.DefaultPeriodSeconds
		}
		fmt.Fprintf(w, "      every    %d s\n", period)
	}
	section("Probes", len(a.Plan.Probes))
	for _, name := range slices.Sorted(maps.Keys(a.Plan.Probes)) {
		fmt.Fprintf(w, "  %s  %s\n", name, a.Plan.Probes[name].HTTPGet.URL)
	}
}

func writeFile(w io.Writer, file plans.File, content bool) {
	what := "file  "
	if file.Directory {
		what = "folder"
	}
	if file.Action == plans.ActionDelete {
		fmt.Fprintf(w, "  delete %s %s\n", what, file.Path)
		return
	}
	mode := "(bad permissions)"
	if bits, err := file.Mode(); err == nil {
		mode = fmt.Sprintf("%04o", bits)
	}
	fmt.Fprintf(w, "  %s %s %d:%d %s\n", what, mode, file.UID, file.GID, file.Path)
	switch {
	case file.Directory:
	case !content:
		fmt.Fprintf(w, "      content  %s\n", orWord(file.Content, "empty"))
	default:
		writeContent(w, file.Content)
	}
}

func writeContent(w io.Writer, encoded string) {
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		fmt.Fprintf(w, "      content  is no base64: %v\n", err)
		return
	}
	for line := range strings.Lines(printable(string(content))) {
		fmt.Fprintf(w, "      | %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func writeInstruction(w io.Writer, index int, i plans.CommonInstruction) {
	fmt.Fprintf(w, "  %d %s\n", index, orWord(i.Name, "(no name)"))
	line := func(title, value string) {
		if value != "" {
			fmt.Fprintf(w, "      %-8s %s\n", title, printable(value))
		}
	}
	line("image", i.Image)
	if i.Script == "" {
		args, _ := json.Marshal(i.Args)
		line("command", strings.TrimSpace(orWord(i.Command, "run.sh of the image")+" "+strings.TrimPrefix(string(args), "null")))
	}
	for n, text := range slices.Collect(strings.Lines(i.Script)) {
		line([]string{"script", ""}[min(n, 1)], strings.TrimSuffix(text, "\n"))
	}
	for _, pair := range i.Env {
		line("env", pair)
	}
	if i.TimeoutSeconds > 0 {
		line("timeout", fmt.Sprintf("%d s", i.TimeoutSeconds))
	}
}

func orWord(text, word string) string {
	if text == "" {
		return word
	}
	return text
}

// printable takes out of a text what could make a terminal do something else than show it.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '·'
		}
		return r
	}, strings.ToValidUTF8(text, "·"))
}

// readPlanFile reads a plan that was never delivered; "-" is the standard input.
func readPlanFile(path string, stdin io.Reader) ([]byte, error) {
	const most = 64 << 20
	if path == "-" {
		return io.ReadAll(io.LimitReader(stdin, most))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}
