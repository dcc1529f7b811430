package systemd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestInheritableEnvironment shows that a program of a plan cannot notify the service manager in the agent's name (S7).
func TestInheritableEnvironment(t *testing.T) {
	got := InheritableEnvironment([]string{"PATH=/bin", "NOTIFY_SOCKET=/run/x", "WATCHDOG_USEC=1", "WATCHDOG_PID=1", "JOURNAL_STREAM=1:2",
		"HTTPS_PROXY=p", "INVOCATION_ID=1", "NOTIFY_SOCKET_OF_MINE=1"})
	if diff := cmp.Diff([]string{"PATH=/bin", "HTTPS_PROXY=p", "NOTIFY_SOCKET_OF_MINE=1"}, got); diff != "" {
		t.Error(diff)
	}
}
