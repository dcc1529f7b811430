package programs

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// WithTimerSlack runs a function that starts programs, which get a timer slack: timers that are within it of each other wake a processor
// once (prctl(2), PR_SET_TIMERSLACK). TimerSlackNSec does the same in a unit of systemd.
func WithTimerSlack(slack time.Duration, start func() error) error {
	// A thread of its own: the slack is that of a thread, which the programs that it starts inherit.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("setting the timer slack: %w", err)
	}
	err := start()
	if resetErr := unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0); resetErr != nil && err == nil {
		return fmt.Errorf("resetting the timer slack: %w", resetErr)
	}
	return err
}
