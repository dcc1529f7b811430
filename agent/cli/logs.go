package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
)

// logOptions select the output to print.
type logOptions struct {
	// instruction is a name or an index; empty is every instruction.
	instruction string
	// attempt is the number of an attempt; 0 is the last one.
	attempt int
	// stdout and stderr select a stream; both or neither is both.
	stdout bool
	stderr bool
	follow bool
}

// logFiles is an element of the output of `logs -o json`: the files with the output of an instruction.
type logFiles struct {
	Source   string                 `json:"source"`
	Checksum string                 `json:"checksum"`
	Attempt  int                    `json:"attempt"`
	Run      journal.InstructionRun `json:"run"`
	Stdout   []string               `json:"stdout"`
	Stderr   []string               `json:"stderr"`
}

func newLogs() *cobra.Command {
	var t target
	var out format
	var options logOptions
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the output of instructions",
		Long: `Show the output of the instructions of an attempt, by default of the last one. The output is read from disk; the middle of a very
large output is truncated, and the place is marked.

With -f, follow the output until the attempt ends. With -o json, print the paths of the files.

The log of the agent itself is in the journal: journalctl -u ` + unitName + `.`,
		Example: "  system-agent logs\n  system-agent logs -f\n  system-agent logs --instruction install --stderr\n" +
			"  system-agent logs --attempt 2 --instruction 0",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, state, err := t.inspectSource(cmd.Context())
			if err != nil {
				return err
			}
			attempt, err := v.findAttempt(cmd.Context(), state, options.attempt)
			if err != nil {
				return err
			}
			if out != formatText {
				return out.print(cmd.OutOrStdout(), options.files(attempt), nil)
			}
			printer := newLogPrinter(cmd.OutOrStdout(), cmd.ErrOrStderr(), options)
			defer printer.close()
			if options.follow && attempt.Ended.IsZero() && v.notRunning == nil {
				return v.follow(cmd.Context(), attempt, printer)
			}
			return printer.print(attempt)
		},
	}
	t.flags(cmd)
	t.sourceFlag(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&options.instruction, "instruction", "", "only this instruction: its name, or its index from 0")
	cmd.Flags().IntVar(&options.attempt, "attempt", 0, "number of the attempt (default: the last attempt)")
	cmd.Flags().BoolVar(&options.stdout, "stdout", false, "only standard output")
	cmd.Flags().BoolVar(&options.stderr, "stderr", false, "only standard error")
	cmd.Flags().BoolVarP(&options.follow, "follow", "f", false, "follow the output until the attempt ends")
	return cmd
}

// findAttempt returns the newest attempt of a source with a number; number 0 is the last attempt.
func (v *view) findAttempt(ctx context.Context, state engine.State, number int) (journal.Attempt, error) {
	attempts, err := v.history(ctx, state)
	if err != nil {
		return journal.Attempt{}, err
	}
	for _, attempt := range slices.Backward(attempts) {
		if number == 0 || attempt.Number == number {
			return attempt, nil
		}
	}
	if number != 0 {
		return journal.Attempt{}, fmt.Errorf("attempt %d not found: system-agent history lists the attempts", number)
	}
	return journal.Attempt{}, errors.New("no attempt yet")
}

// selects is true for the runs of the selected instruction.
func (o logOptions) selects(run journal.InstructionRun) bool {
	return o.instruction == "" || o.instruction == run.Name || o.instruction == strconv.Itoa(run.Index)
}

// streams are the selected streams.
func (o logOptions) streams() []string {
	switch {
	case o.stdout && !o.stderr:
		return []string{streamStdout}
	case o.stderr && !o.stdout:
		return []string{streamStderr}
	}
	return []string{streamStdout, streamStderr}
}

// files lists the output files of the selected instructions. An output that was removed has none.
func (o logOptions) files(attempt journal.Attempt) []logFiles {
	all := []logFiles{}
	for _, run := range attempt.Instructions {
		if !o.selects(run) {
			continue
		}
		files := logFiles{Source: attempt.Source, Checksum: attempt.Checksum, Attempt: attempt.Number, Run: run,
			Stdout: []string{}, Stderr: []string{}}
		for stream, paths := range map[string]*[]string{streamStdout: &files.Stdout, streamStderr: &files.Stderr} {
			parts, _ := outputParts(run.RunDir, stream)
			for _, part := range parts {
				*paths = append(*paths, partPath(run.RunDir, stream, part))
			}
		}
		all = append(all, files)
	}
	return all
}

// logPrinter prints the output of an attempt, every part once.
type logPrinter struct {
	options  logOptions
	out, err io.Writer
	// headers is true if output of more than one stream may be printed.
	headers bool
	// title is that of the last header.
	title   string
	readers map[string]*outputReader
	// removed holds the run directories that are gone, so that each is reported once.
	removed map[string]bool
	// matched is true once a run was selected.
	matched bool
}

func newLogPrinter(out, err io.Writer, options logOptions) *logPrinter {
	return &logPrinter{options: options, out: out, err: err, headers: options.instruction == "" || len(options.streams()) > 1,
		readers: map[string]*outputReader{}, removed: map[string]bool{}}
}

// print prints the output of an attempt. The error says that the selected instruction did not run.
func (p *logPrinter) print(attempt journal.Attempt) error {
	if err := p.printNew(attempt); err != nil {
		return err
	}
	if p.matched {
		return nil
	}
	if p.options.instruction != "" {
		return fmt.Errorf("attempt %d did not run instruction %q", attempt.Number, p.options.instruction)
	}
	fmt.Fprintf(p.err, "Attempt %d did not run any instruction.\n", attempt.Number)
	return nil
}

// printNew prints the output since the last call.
func (p *logPrinter) printNew(attempt journal.Attempt) error {
	for _, run := range attempt.Instructions {
		if !p.options.selects(run) {
			continue
		}
		p.matched = true
		for _, stream := range p.options.streams() {
			if err := p.printStream(run, stream); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *logPrinter) printStream(run journal.InstructionRun, stream string) error {
	if run.RunDir == "" || p.removed[run.RunDir] {
		return nil
	}
	key := run.RunDir + "/" + stream
	if p.readers[key] == nil {
		p.readers[key] = &outputReader{directory: run.RunDir, stream: stream, part: -1}
	}
	err := p.readers[key].copy(&sectionWriter{printer: p, title: runName(run) + ", " + stream})
	if errors.Is(err, os.ErrNotExist) {
		if !run.Ended.IsZero() {
			p.removed[run.RunDir] = true
			fmt.Fprintf(p.err, "The output of %s was removed.\n", runName(run))
		}
		return nil // otherwise the instruction is about to start
	}
	return err
}

func (p *logPrinter) close() {
	for _, reader := range p.readers {
		reader.close()
	}
}

// sectionWriter prints a header before output of another stream than that of the last write.
type sectionWriter struct {
	printer *logPrinter
	title   string
}

// Write implements io.Writer.
func (w *sectionWriter) Write(raw []byte) (int, error) {
	p := w.printer
	if p.headers && p.title != w.title {
		if _, err := fmt.Fprintf(p.out, "==> %s <==\n", w.title); err != nil {
			return 0, err
		}
	}
	p.title = w.title
	return p.out.Write(raw)
}
