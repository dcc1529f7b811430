package drivermachine

import "time"

const (
	// maxAttempts is how often a machine is created before its error is final.
	maxAttempts  = 5
	firstBackoff = 30 * time.Second
	maxBackoff   = 15 * time.Minute
)

// backoff is the pause after the given attempt, counted from 1, has failed.
func backoff(attempt int) time.Duration {
	d := firstBackoff
	for range attempt - 1 {
		if d *= 2; d >= maxBackoff {
			return maxBackoff
		}
	}
	return d
}
