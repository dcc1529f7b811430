package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/retry"
)

const (
	// pollInterval is how often everything is read again where the kernel has no watches left.
	pollInterval = time.Second
	// startupTime is how long an agent may take to read its journal after a start.
	startupTime = 30 * time.Second
)

// follow prints the output of an attempt until the attempt ends or the user stops it. At rest it does nothing but wait for changes on disk.
func (v *view) follow(ctx context.Context, attempt journal.Attempt, printer *logPrinter) error {
	w := &logWatch{runs: map[string]bool{}}
	if w.watcher, w.err = fsnotify.NewWatcher(); w.err == nil {
		defer w.watcher.Close()
	}
	// The agent's state is never older than its journal. Its socket appears and disappears with it.
	w.add(filepath.Dir(v.client.Socket()))
	for _, dir := range stateDirectories(v.host, v.status.StateDirectory) {
		if dir.source == attempt.Source {
			w.add(dir.path)
		}
	}
	stopped := false
	for agentChanged := true; ctx.Err() == nil; agentChanged = w.wait(ctx) {
		if agentChanged {
			switch next, err := v.refresh(ctx, attempt); {
			case err == nil:
				attempt, stopped = next, false
			case !errors.Is(err, control.ErrNotRunning):
				return err
			case !stopped:
				// The agent may be restarted for an upgrade: instructions in transient units continue, and so does their output.
				stopped = true
				fmt.Fprintln(printer.err, "The agent has stopped; running instructions may continue. Press Ctrl-C to stop following.")
			}
			for _, run := range attempt.Instructions {
				w.add(filepath.Dir(run.RunDir)) // the run directory may be about to be created
				w.add(run.RunDir)
				w.runs[run.RunDir] = true
			}
		}
		if err := printer.printNew(attempt); err != nil {
			return err
		}
		if !attempt.Ended.IsZero() {
			return printer.print(attempt)
		}
	}
	return nil
}

// logWatch waits for changes in directories.
type logWatch struct {
	watcher *fsnotify.Watcher
	// err is why a directory cannot be watched; pollInterval counts then.
	err error
	// runs are the run directories.
	runs map[string]bool
}

// add watches a directory, if there is one.
func (w *logWatch) add(dir string) {
	if w.err != nil {
		return
	}
	if w.err = w.watcher.Add(dir); errors.Is(w.err, os.ErrNotExist) {
		w.err = nil
	}
}

// wait waits for a change. It returns true if the agent may have changed, false if only a file in a run directory has.
func (w *logWatch) wait(ctx context.Context) (agentChanged bool) {
	if w.err != nil {
		return retry.Sleep(ctx, pollInterval) == nil
	}
	select {
	case <-ctx.Done():
		return false
	case event := <-w.watcher.Events:
		return !w.runs[filepath.Dir(event.Name)]
	case err := <-w.watcher.Errors:
		return err != nil // events were lost
	}
}

// refresh asks the agent for the current state of an attempt.
func (v *view) refresh(ctx context.Context, attempt journal.Attempt) (journal.Attempt, error) {
	status, err := v.client.Status(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return attempt, nil
		}
		return attempt, err
	}
	v.status = status
	state, err := v.source(attempt.Source)
	if (err != nil || state.Last == nil) && time.Since(status.Started) < startupTime {
		return attempt, nil // it has not read its journal yet
	}
	if err != nil {
		return attempt, err
	}
	if state.Last != nil && sameAttempt(*state.Last, attempt) {
		return *state.Last, nil
	}
	// Another attempt has started, so this one has ended.
	all, err := v.client.History(ctx, attempt.Source)
	if err != nil {
		return attempt, err
	}
	for _, one := range all {
		if sameAttempt(one, attempt) {
			attempt = one
		}
	}
	if attempt.Ended.IsZero() {
		attempt.Ended = time.Now()
	}
	return attempt, nil
}
