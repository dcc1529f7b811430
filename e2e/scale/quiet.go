package main

import (
	"context"
	"fmt"
	"time"

	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/e2e/scale/programs"
)

// untilQuiet waits until programs use little of a processor for a while.
func untilQuiet(ctx context.Context, used func() (programs.Used, error)) error {
	const interval, most = 10 * time.Second, 0.2
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
