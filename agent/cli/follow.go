package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine"
)

// lookAgain is for what the file system does not tell, such as an agent that ended without a word.
const lookAgain = 2 * time.Second

// startTime is how long an agent may take until it knows of what it did before.
const startTime = 30 * time.Second

// follow prints what an attempt writes until it has ended. It is woken by changes in the folders of the runs, and by the journal, in
// which every step begins and ends.
func (v *view) follow(ctx context.Context, attempt engine.Attempt, printer *logPrinter) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching for output: %w", err)
	}
	defer watcher.Close()
	watched := map[string]bool{}
	away := false
	for {
		watch(watcher, watched, v.cfg.StateDirectory)
		for _, run := range attempt.Instructions {
			if run.Spool != "" {
				watch(watcher, watched, filepath.Dir(filepath.Dir(run.Spool)))
				watch(watcher, watched, run.Spool)
			}
		}
		if err := printer.more(attempt); err != nil {
			return err
		}
		if !attempt.Ended.IsZero() {
			return printer.print(attempt)
		}
		select {
		case <-ctx.Done():
			return nil // the user has seen enough
		case err := <-watcher.Errors:
			return fmt.Errorf("watching for output: %w", err)
		case event := <-watcher.Events:
			if watched[filepath.Dir(event.Name)] && isOutput(event.Name) {
				continue // only output was added
			}
		case <-time.After(lookAgain):
		}
		switch newer, err := v.newer(ctx, attempt); {
		case err == nil:
			attempt, away = newer, false
		case !errors.Is(err, control.ErrNotRunning):
			return err
		case !away:
			// It may be being upgraded. What runs in a unit of its own goes on, and so does its output.
			away = true
			fmt.Fprintln(printer.err, "The agent has gone; what it has begun may go on. Ctrl-C ends this.")
		}
	}
}

// watch adds a folder once it is there.
func watch(watcher *fsnotify.Watcher, watched map[string]bool, dir string) {
	if !watched[dir] && watcher.Add(dir) == nil {
		watched[dir] = true
	}
}

func isOutput(path string) bool {
	name := filepath.Base(path)
	for _, stream := range []string{streamStdout, streamStderr} {
		if len(name) >= len(stream)+4 && name[:len(stream)+4] == stream+".log" {
			return true
		}
	}
	return false
}

// newer asks the agent how far the attempt has come.
func (v *view) newer(ctx context.Context, attempt engine.Attempt) (engine.Attempt, error) {
	status, err := v.client.Status(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return attempt, nil
		}
		return attempt, err
	}
	v.Status = status
	state, err := v.source(attempt.Source)
	if (err != nil || state.Last == nil) && time.Since(status.Started) < startTime {
		return attempt, nil // it has not read its journal yet
	}
	if err != nil {
		return attempt, err
	}
	if state.Last != nil && sameAttempt(*state.Last, attempt) {
		return *state.Last, nil
	}
	// Another attempt has begun, so this one has ended.
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
