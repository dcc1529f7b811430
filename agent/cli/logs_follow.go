package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine/journal"
)

const (
	// followInterval is how often new output is printed and the agent is asked whether the attempt has ended.
	followInterval = 200 * time.Millisecond
	// startupTime is how long an agent may take to read its journal after a start.
	startupTime = 30 * time.Second
)

// follow prints the output of an attempt until the attempt ends or the user stops it.
func (v *view) follow(ctx context.Context, attempt journal.Attempt, printer *logPrinter) error {
	stopped := false
	for {
		if err := printer.printNew(attempt); err != nil {
			return err
		}
		if !attempt.Ended.IsZero() {
			return printer.print(attempt)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followInterval):
		}
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
