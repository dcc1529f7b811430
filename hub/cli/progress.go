package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// progress writes how an operation goes on: as JSON, in place on a terminal, or as lines. Errors of the writer are ignored: the operation
// is waited for, and not the reader of the output.
type progress struct {
	out  io.Writer
	json bool
	// messages is where awaitAnswer writes.
	messages io.Writer
	// unanswered writes it; nil while the hub answers. reason is why it does not, a string.
	unanswered *time.Timer
	reason     atomic.Value
	// size returns rows and columns of the terminal; nil for another writer.
	size func() (rows, columns int)
	now  func() time.Time
	// ticks is when a terminal is to be redrawn; nil for never.
	ticks <-chan time.Time
	stop  func()

	line operationLine
	// steps are those that are done; began is when the present one began.
	steps []string
	began time.Time
	// problem is why there is no news.
	problem string
	// height is the number of lines to redraw.
	height int
	// printed is what was printed last: the phase, and the phases of machines in the present step.
	printed  string
	machines map[string]operationv1.Phase
}

func newProgress(out io.Writer, asJSON bool) *progress {
	p := &progress{out: out, json: asJSON, messages: io.Discard, now: time.Now, stop: func() {}}
	if _, _, ok := terminalSize(out); ok && !asJSON {
		p.size = func() (int, int) {
			rows, columns, ok := terminalSize(out)
			if !ok {
				return 24, 80
			}
			return rows, columns
		}
		ticker := time.NewTicker(time.Second)
		p.ticks, p.stop = ticker.C, ticker.Stop
	}
	return p
}

// show takes the operation as it is now.
func (p *progress) show(line operationLine) {
	p.answered()
	previous := p.line
	p.line, p.problem = line, ""
	if line.Step != previous.Step {
		at := p.now()
		if line.LastUpdated != nil {
			at = line.LastUpdated.Time
		}
		if previous.Step != "" && line.Phase != operationv1.PhaseFailed && line.Phase != operationv1.PhaseCanceled {
			p.steps = append(p.steps, fmt.Sprintf("%s: done in %s", printable(previous.Step), timeBetween(p.began, at)))
		}
		p.began = at
	}
	switch {
	case p.json:
		p.printJSON()
	case p.size != nil:
		p.redraw()
	default:
		p.printLines(line.Step != previous.Step && !line.Phase.Ended())
	}
}

// trouble shows why there is no news.
func (p *progress) trouble(err error) {
	problem := printable(oneLine(err)) + "; retrying"
	p.reason.Store(problem)
	if problem == p.problem || p.json {
		return
	}
	p.problem = problem
	if p.size != nil {
		p.redraw()
	} else {
		p.println(problem)
	}
}

// answerDelay is how long a hub may take to answer before that is shown.
const answerDelay = 2 * time.Second

// awaitAnswer shows what is waited for if the hub has not answered after answerDelay. JSON has no place for that; otherwise trouble does.
func (p *progress) awaitAnswer(ref string) {
	if !p.json || p.unanswered != nil {
		return
	}
	p.unanswered = time.AfterFunc(answerDelay, func() {
		reason, _ := p.reason.Load().(string)
		_, _ = fmt.Fprintf(p.messages, "hub: waiting for the hub to answer: %s\n", cmp.Or(reason, "reading "+ref))
	})
}

// answered ends awaitAnswer.
func (p *progress) answered() {
	if p.unanswered != nil {
		p.unanswered.Stop()
		p.unanswered = nil
		p.reason.Store("")
	}
}

// interrupt leaves the line with the ^C of a terminal.
func (p *progress) interrupt() {
	if p.size != nil {
		_, _ = fmt.Fprintln(p.out)
	}
}

func (p *progress) printJSON() {
	raw, err := json.Marshal(p.line)
	if err == nil && string(raw) != p.printed {
		p.printed = string(raw)
		_, _ = fmt.Fprintln(p.out, p.printed)
	}
}

func (p *progress) println(text string) {
	_, _ = fmt.Fprintf(p.out, "%s  %s\n", p.now().Format(time.TimeOnly), text)
}

// printLines prints what has changed. The machines of the last step come before the end.
func (p *progress) printLines(newStep bool) {
	l := p.line
	if newStep || p.machines == nil {
		p.machines = map[string]operationv1.Phase{}
	}
	if l.Phase.Ended() {
		p.printMachines()
	}
	state := strings.Join([]string{l.phaseText(), l.Step, l.Reason}, "/")
	if state != p.printed {
		p.printed = state
		p.println(joined(l.phaseText(), ": ", joined(printable(l.Step), ": ", printable(l.Message))))
	}
	if !l.Phase.Ended() {
		p.printMachines()
	}
}

func (p *progress) printMachines() {
	for _, m := range p.line.Machines {
		if m.Phase != p.machines[m.Name] && m.Phase != operationv1.PhaseInProgress {
			p.println(machineText(m, 0))
		}
		p.machines[m.Name] = m.Phase
	}
}

// redraw writes the block of a terminal over the previous one.
func (p *progress) redraw() {
	if p.size == nil || p.line.Name == "" {
		return
	}
	rows, columns := p.size()
	var out strings.Builder
	if p.height > 0 {
		fmt.Fprintf(&out, "\x1b[%dA\r\x1b[J", p.height)
	}
	lines := p.block(rows - 1)
	for _, line := range lines {
		if runes := []rune(line); len(runes) > columns-1 {
			line = string(runes[:max(columns-2, 0)]) + "…"
		}
		out.WriteString(line + "\n")
	}
	p.height = len(lines)
	_, _ = io.WriteString(p.out, out.String())
}

// block is the operation, its steps and its machines, in at most so many lines.
func (p *progress) block(most int) []string {
	l, end := p.line, p.now()
	if l.TerminatedAt != nil {
		end = l.TerminatedAt.Time
	}
	lines := []string{fmt.Sprintf("%s: %s, %s", l.ref(), l.phaseText(), timeBetween(l.Created.Time, end))}
	for _, step := range p.steps {
		lines = append(lines, "  "+step)
	}
	state := printable(l.Message)
	if l.Step != "" {
		state = joined(fmt.Sprintf("%s: %d of %d machines done", printable(l.Step), l.done(), len(l.Machines)), ": ", state)
	}
	if state != "" {
		lines = append(lines, "  "+state)
	}
	if p.problem != "" {
		lines = append(lines, "  "+p.problem)
	}
	return append(lines, machineLines(l.Machines, max(most-len(lines), 1))...)
}

// machineLines has those first of which a user wants to know: the failed ones, then those at work, and those that were left out.
func machineLines(machines []operationv1.MachineStatus, most int) []string {
	machines = slices.Clone(machines)
	rank := map[operationv1.Phase]int{operationv1.PhaseFailed: 0, operationv1.PhaseInProgress: 1, operationv1.PhaseCanceled: 2}
	rankOf := func(m operationv1.MachineStatus) int {
		if r, ok := rank[m.Phase]; ok {
			return r
		}
		return len(rank)
	}
	slices.SortStableFunc(machines, func(a, b operationv1.MachineStatus) int { return cmp.Compare(rankOf(a), rankOf(b)) })
	more := 0
	if len(machines) > most {
		more = len(machines) - most + 1
		machines = machines[:most-1]
	}
	width := 0
	for _, m := range machines {
		width = max(width, len([]rune(printable(m.Name))))
	}
	var lines []string
	for _, m := range machines {
		lines = append(lines, "    "+machineText(m, width))
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("    and %d more", more))
	}
	return lines
}

// machineText is a machine with its phase; width aligns the phases, 0 writes a colon instead.
func machineText(m operationv1.MachineStatus, width int) string {
	name := printable(m.Name)
	if width == 0 {
		name += ":"
	}
	return joined(fmt.Sprintf("%-*s %s", width, name, m.Phase), ": ", printable(m.Message))
}

// joined leaves the separator out where one of the texts is empty.
func joined(a, separator, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + separator + b
}

// timeBetween is a duration in seconds; the clocks of two machines may differ.
func timeBetween(from, to time.Time) time.Duration { return max(to.Sub(from), 0).Truncate(time.Second) }
