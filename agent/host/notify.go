package host

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notify implements Host. A service manager that does not listen is no fault of the agent's, so errors are dropped.
func (Machine) Notify(state string) {
	_, _ = daemon.SdNotify(false, state)
}

// WatchdogInterval is how often the service manager wants to hear "WATCHDOG=1" at the latest; 0 means that it does not listen for it.
func WatchdogInterval() time.Duration {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return interval
}
