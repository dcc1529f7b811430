package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/semaphore"
)

// awaitReload waits for SIGHUP, by which an upgrade asks the agent to make way for the installed binary, and then for the plan that is
// being applied, if there is one: gate is what an engine holds meanwhile. It returns true with the gate held, so that no plan begins any
// more, or false if ctx ends first.
func awaitReload(ctx context.Context, signals <-chan os.Signal, gate *semaphore.Weighted, log *slog.Logger) bool {
	select {
	case <-ctx.Done():
		return false
	case <-signals:
	}
	log.Info("Reload requested, executing the installed binary when no plan is being applied")
	return gate.Acquire(ctx, 1) == nil
}

// notifyReload returns the channel of SIGHUP, and what ends it. From now on the signal does not end the process.
func notifyReload() (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}
