package lab

import (
	"context"
	"fmt"
	"time"
)

// Check looks once whether something has come true; if not, it says in words what is still missing.
type Check func(ctx context.Context) (done bool, missing string)

const pollInterval = 200 * time.Millisecond

// WaitFor repeats a check until it is done, reports each change of what is missing, and gives up after limit, or when
// the hub has ended.
func (l *Lab) WaitFor(ctx context.Context, what string, limit time.Duration, check Check) error {
	hubRan := l.Running(hubProcess)
	deadline := time.Now().Add(limit)
	said := ""
	for {
		done, missing := check(ctx)
		if done {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if missing != said && !isSilent(ctx) {
			l.report(missing)
		}
		said = missing
		if hubRan && !l.Running(hubProcess) {
			return fmt.Errorf("waiting until %s: the hub has ended: %s", what, l.LastLog(hubProcess))
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting until %s: not after %s: %s", what, limit, said)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

type silentKey struct{}

// Silent makes waits report nothing, for those beside a step that reports for itself.
func Silent(ctx context.Context) context.Context { return context.WithValue(ctx, silentKey{}, true) }

func isSilent(ctx context.Context) bool { return ctx.Value(silentKey{}) != nil }
