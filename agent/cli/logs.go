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
)

// logsQuery is which output is asked for.
type logsQuery struct {
	source      string
	instruction string
	attempt     int
	stdout      bool
	stderr      bool
	follow      bool
}

// logsAnswer is what `logs -o json` prints: where the output is.
type logsAnswer struct {
	Source   string                `json:"source"`
	Checksum string                `json:"checksum"`
	Attempt  int                   `json:"attempt"`
	Run      engine.InstructionRun `json:"run"`
	Stdout   []string              `json:"stdout"`
	Stderr   []string              `json:"stderr"`
}

func newLogs() *cobra.Command {
	var where place
	var out format
	var query logsQuery
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show what instructions have written",
		Long: `Show what the instructions of an attempt have written: the whole output as it is kept on disk, of the last attempt where none is
named. Of an output that is too large for the disk's share the middle is missing, which is said in its place.

With -f it goes on until the attempt has ended. With -o json it tells where the files are.

What the agent itself does is in the journal: journalctl -u rancher-system-agent.`,
		Example: "  system-agent logs\n  system-agent logs -f\n  system-agent logs --instruction install --stderr\n  system-agent logs --attempt 2 --instruction 0",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := where.look(cmd.Context())
			if err != nil {
				return err
			}
			attempt, err := v.findAttempt(cmd.Context(), query)
			if err != nil {
				return err
			}
			if out != formatText {
				return out.print(cmd.OutOrStdout(), logFiles(attempt, query), nil)
			}
			printer := newLogPrinter(cmd.OutOrStdout(), cmd.ErrOrStderr(), query)
			defer printer.close()
			if query.follow && attempt.Ended.IsZero() && v.Down == nil {
				return v.follow(cmd.Context(), attempt, printer)
			}
			return printer.print(attempt)
		},
	}
	where.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&query.source, "source", "", "source of the plan: hub, or the name of a local plan (default: hub, or the only one)")
	cmd.Flags().StringVar(&query.instruction, "instruction", "", "only this instruction: its name, or its number, counted from 0")
	cmd.Flags().IntVar(&query.attempt, "attempt", 0, "the last attempt of this number (default: the last attempt)")
	cmd.Flags().BoolVar(&query.stdout, "stdout", false, "only the standard output")
	cmd.Flags().BoolVar(&query.stderr, "stderr", false, "only the standard error")
	cmd.Flags().BoolVarP(&query.follow, "follow", "f", false, "go on until the attempt has ended")
	return cmd
}

// findAttempt gives the newest attempt that is asked for.
func (v *view) findAttempt(ctx context.Context, query logsQuery) (engine.Attempt, error) {
	state, err := v.source(query.source)
	if err != nil {
		return engine.Attempt{}, err
	}
	attempts, err := v.history(ctx, state)
	if err != nil {
		return engine.Attempt{}, err
	}
	for _, attempt := range slices.Backward(attempts) {
		if query.attempt == 0 || attempt.Number == query.attempt {
			return attempt, nil
		}
	}
	if query.attempt != 0 {
		return engine.Attempt{}, fmt.Errorf("there was no attempt %d, system-agent history lists them", query.attempt)
	}
	return engine.Attempt{}, errors.New("there was no attempt yet")
}

// wants tells whether a run is asked for.
func (q logsQuery) wants(run engine.InstructionRun) bool {
	return q.instruction == "" || q.instruction == run.Name || q.instruction == strconv.Itoa(run.Index)
}

// streams are those that are asked for.
func (q logsQuery) streams() []string {
	switch {
	case q.stdout && !q.stderr:
		return []string{streamStdout}
	case q.stderr && !q.stdout:
		return []string{streamStderr}
	}
	return []string{streamStdout, streamStderr}
}

func logFiles(attempt engine.Attempt, query logsQuery) []logsAnswer {
	answers := []logsAnswer{}
	for _, run := range attempt.Instructions {
		if !query.wants(run) {
			continue
		}
		answer := logsAnswer{Source: attempt.Source, Checksum: attempt.Checksum, Attempt: attempt.Number, Run: run, Stdout: []string{}, Stderr: []string{}}
		for stream, paths := range map[string]*[]string{streamStdout: &answer.Stdout, streamStderr: &answer.Stderr} {
			found, _ := parts(run.Spool, stream) // a folder that is gone has none
			for _, part := range found {
				*paths = append(*paths, partPath(run.Spool, stream, part))
			}
		}
		answers = append(answers, answer)
	}
	return answers
}

// logPrinter prints the outputs of an attempt's runs, each once.
type logPrinter struct {
	query    logsQuery
	out, err io.Writer
	// headers says whose output follows; not needed where only one can come.
	headers bool
	section string
	tails   map[string]*tail
	gone    map[string]bool
	matched bool
}

func newLogPrinter(out, err io.Writer, query logsQuery) *logPrinter {
	return &logPrinter{query: query, out: out, err: err, headers: query.instruction == "" || len(query.streams()) > 1,
		tails: map[string]*tail{}, gone: map[string]bool{}}
}

// print prints what is there now; it ends with an error when nothing was found.
func (p *logPrinter) print(attempt engine.Attempt) error {
	if err := p.more(attempt); err != nil {
		return err
	}
	if p.matched {
		return nil
	}
	if p.query.instruction != "" {
		return fmt.Errorf("attempt %d has run no instruction %q", attempt.Number, p.query.instruction)
	}
	fmt.Fprintf(p.err, "Attempt %d has run no instruction.\n", attempt.Number)
	return nil
}

// more prints what was added since the last time.
func (p *logPrinter) more(attempt engine.Attempt) error {
	for _, run := range attempt.Instructions {
		if !p.query.wants(run) {
			continue
		}
		p.matched = true
		for _, stream := range p.query.streams() {
			if err := p.stream(run, stream); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *logPrinter) stream(run engine.InstructionRun, stream string) error {
	if run.Spool == "" || p.gone[run.Spool] {
		return nil
	}
	key := run.Spool + "/" + stream
	if p.tails[key] == nil {
		p.tails[key] = newTail(run.Spool, stream)
	}
	err := p.tails[key].copy(&sectionWriter{printer: p, title: runName(run) + ", " + stream})
	if errors.Is(err, os.ErrNotExist) {
		if !run.Ended.IsZero() {
			p.gone[run.Spool] = true
			fmt.Fprintf(p.err, "The output of %s is not kept any more.\n", runName(run))
		}
		return nil // it has not begun yet
	}
	return err
}

func (p *logPrinter) close() {
	for _, t := range p.tails {
		t.close()
	}
}

// sectionWriter puts a header before what comes from another place than what came before.
type sectionWriter struct {
	printer *logPrinter
	title   string
}

// Write implements io.Writer.
func (w *sectionWriter) Write(raw []byte) (int, error) {
	p := w.printer
	if p.headers && p.section != w.title {
		if _, err := fmt.Fprintf(p.out, "==> %s <==\n", w.title); err != nil {
			return 0, err
		}
	}
	p.section = w.title
	return p.out.Write(raw)
}
