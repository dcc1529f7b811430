package main

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/e2e/scale/programs"
)

// quiet is what programs use of a processor at most that are at rest, quietCluster what each cluster may add to that: the hub looks after
// its health every ten seconds.
const quiet, quietCluster = 0.2, 0.001

// untilQuiet waits until programs use at most so much of a processor for a while.
func untilQuiet(ctx context.Context, most float64, used func() (programs.Used, error)) error {
	const interval = 10 * time.Second
	for {
		from, err := used()
		if err != nil {
			return err
		}
		if err := retry.Sleep(ctx, interval); err != nil {
			return fmt.Errorf("waiting for the hub to be at rest: %w", err)
		}
		to, err := used()
		if err != nil || (to.CPU-from.CPU).Seconds() < most*interval.Seconds() {
			return err
		}
	}
}
