// Package progress tells a person who waits how far a long copy has come: a line every two seconds, and nothing at all for
// what is done sooner. It never decides anything.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Interval is the time between two lines, and the time that passes before the first.
const Interval = 2 * time.Second

// Reporter writes the lines. A nil Reporter writes none.
type Reporter struct {
	// Out receives the lines; the standard error, usually.
	Out io.Writer
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Task is one thing that takes long. A nil Task is of no effect.
type Task struct {
	reporter *Reporter
	what     string

	mu    sync.Mutex
	done  int64
	total int64
	last  time.Time
}

// Start begins a task of total bytes; a total below 1 is not known.
func (r *Reporter) Start(what string, total int64) *Task {
	if r == nil || r.Out == nil {
		return nil
	}
	return &Task{reporter: r, what: what, total: total, last: r.now()}
}

// Reader counts what is read through it as progress of a task of its own.
func (r *Reporter) Reader(in io.Reader, what string, total int64) io.Reader {
	task := r.Start(what, total)
	if task == nil {
		return in
	}
	return &reader{in: in, task: task}
}

func (r *Reporter) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// Add tells that another n bytes are done.
func (t *Task) Add(n int64) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.report(t.done+n, t.total)
	}
}

// Set tells how many bytes of how many are done.
func (t *Task) Set(done, total int64) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.report(done, total)
	}
}

func (t *Task) report(done, total int64) {
	t.done, t.total = done, total
	now := t.reporter.now()
	if now.Sub(t.last) < Interval {
		return
	}
	t.last = now
	if total > 0 {
		_, _ = fmt.Fprintf(t.reporter.Out, "  %s: %s of %s (%d %%)\n", t.what, Bytes(done), Bytes(total), done*100/total)
		return
	}
	_, _ = fmt.Fprintf(t.reporter.Out, "  %s: %s\n", t.what, Bytes(done))
}

type reader struct {
	in   io.Reader
	task *Task
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.task.Add(int64(n))
	return n, err
}

// Bytes writes a number of bytes for people.
func Bytes(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
