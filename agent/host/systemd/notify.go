package systemd

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notify sends a state in the syntax of sd_notify(3), such as "READY=1", to the service manager. Without NOTIFY_SOCKET it does nothing.
// Errors are dropped: a service manager that does not listen is no failure of the agent.
func Notify(state string) {
	_, _ = daemon.SdNotify(false, state)
}

// WatchdogInterval is the longest time that may pass between two "WATCHDOG=1" (WatchdogSec= of the unit, from WATCHDOG_USEC); 0 if the unit
// has no watchdog.
func WatchdogInterval() time.Duration {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return interval
}
