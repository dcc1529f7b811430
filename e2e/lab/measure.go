package lab

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/e2e/hosts"
)

// HubMemory is the resident memory of the hub, in bytes.
func (l *Lab) HubMemory() (int64, error) {
	pid := l.PID(hubProcess)
	if pid == 0 {
		return 0, fmt.Errorf("the hub does not run")
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseRSS(string(raw))
}

// AgentMemory is the resident memory of the system-agent on a host, in bytes.
func (l *Lab) AgentMemory(ctx context.Context, host *hosts.Host) (int64, error) {
	res, err := host.Exec(ctx, "sh", "-c", "cat /proc/$(systemctl show --value -p MainPID rancher-system-agent)/status")
	if err != nil {
		return 0, err
	}
	if res.ExitCode != 0 {
		return 0, fmt.Errorf("reading the agent's memory: %s", strings.TrimSpace(res.Stderr))
	}
	return parseRSS(res.Stdout)
}

// parseRSS reads VmRSS from the text of /proc/<pid>/status.
func parseRSS(status string) (int64, error) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading VmRSS: %w", err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("no VmRSS: the process has ended")
}
