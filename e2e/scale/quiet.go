package main

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/e2e/scale/programs"
)

// quiet is what programs use of a processor at most that are at rest, quietCluster what each cluster may add to that: the hub looks after
// its health, and its agents renew their watches.
const quiet, quietCluster = 0.2, 0.0002

// quietIntervals is how many intervals have to be quiet, one after the other. A hub that was busy collects its garbage and returns memory
// ten to twenty seconds later (hub/util/gctuner); that counts for the phase in which it was busy, and not for the next.
const quietIntervals, quietInterval = 3, 10 * time.Second

// untilQuiet waits until programs use at most so much of a processor for a while.
func untilQuiet(ctx context.Context, most float64, used func() (programs.Used, error)) error {
	from, err := used()
	if err != nil {
		return err
	}
	for intervals := 0; intervals < quietIntervals; {
		if err := retry.Sleep(ctx, quietInterval); err != nil {
			return fmt.Errorf("waiting for the hub to be at rest: %w", err)
		}
		to, err := used()
		if err != nil {
			return err
		}
		intervals++
		if (to.CPU - from.CPU).Seconds() >= most*quietInterval.Seconds() {
			intervals = 0
		}
		from = to
	}
	return nil
}
