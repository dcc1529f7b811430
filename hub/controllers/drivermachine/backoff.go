package drivermachine

import "time"

const (
	// maxAttempts is how often a machine is created before its error is final.
	maxAttempts  = 5
	firstBackoff = 30 * time.Second
	maxBackoff   = 15 * time.Minute
	// programPause is after which the program of a driver is downloaded again that could not be. It is no attempt of the machine.
	programPause = 2 * time.Minute
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

// pause is how much is left of the pause after an attempt that has failed; zero for nothing. One that is longer than any was written while
// the clock was ahead, and no machine waits for it to catch up.
func (p progress) pause(now time.Time) time.Duration {
	left := p.NotBefore.Sub(now)
	if left > maxBackoff {
		return 0
	}
	return max(0, left)
}
