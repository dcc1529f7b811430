// Package progress reports long copies to a person: a line every two seconds, and none for what takes less.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
)

// Interval is the time before the first line and between two lines.
const Interval = 2 * time.Second

// Reporter writes the lines. A nil Reporter writes none.
type Reporter struct {
	// Out receives the lines; nil reports none.
	Out io.Writer
}

// Task is one copy. A nil Task reports nothing.
type Task struct {
	reporter *Reporter
	name     string

	mu    sync.Mutex
	done  int64
	total int64
	last  time.Time
}

// Start starts a task of total bytes; 0 or less if it is unknown.
func (r *Reporter) Start(name string, total int64) *Task {
	if r == nil || r.Out == nil {
		return nil
	}
	return &Task{reporter: r, name: name, total: total, last: time.Now()}
}

// Reader reports what is read through it as a task.
func (r *Reporter) Reader(in io.Reader, name string, total int64) io.Reader {
	task := r.Start(name, total)
	if task == nil {
		return in
	}
	return &reader{in: in, task: task}
}

// Add reports another n bytes.
func (t *Task) Add(n int64) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.report(t.done+n, t.total)
	}
}

// Set reports done of total bytes.
func (t *Task) Set(done, total int64) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.report(done, total)
	}
}

func (t *Task) report(done, total int64) {
	t.done, t.total = done, total
	if time.Since(t.last) < Interval {
		return
	}
	t.last = time.Now()
	if total > 0 {
		_, _ = fmt.Fprintf(t.reporter.Out, "  %s: %s of %s (%d %%)\n", t.name, humanize.IBytes(uint64(done)), humanize.IBytes(uint64(total)),
			done*100/total)
		return
	}
	_, _ = fmt.Fprintf(t.reporter.Out, "  %s: %s\n", t.name, humanize.IBytes(uint64(done)))
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
