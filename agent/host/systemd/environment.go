package systemd

import (
	"slices"
	"strings"
)

// serviceVariables are set by systemd for the processes of one service (systemd.exec(5)). A program that inherited them could notify the
// service manager in the agent's name.
var serviceVariables = []string{
	"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "JOURNAL_STREAM", "INVOCATION_ID",
	"SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "MAINPID", "MANAGERPID",
}

// InheritableEnvironment copies an environment (NAME=value) without the variables that systemd sets for the agent's service alone.
func InheritableEnvironment(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(serviceVariables, name)
	})
}
