package upgrade

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/host"
	hostfs "github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
)

const (
	// RollbackCommand is the hidden command of the agent that RollbackUnit runs.
	RollbackCommand = "rollback-upgrade"
	// RollbackUnit is the name of the units without ".service" and ".timer".
	RollbackUnit = "rancher-system-agent-rollback"
)

func (f files) servicePath() string { return filepath.Join(f.unitDirectory, RollbackUnit+".service") }
func (f files) timerPath() string   { return filepath.Join(f.unitDirectory, RollbackUnit+".timer") }
func (f files) wantsPath() string {
	return filepath.Join(f.unitDirectory, "timers.target.wants", RollbackUnit+".timer")
}

// startTimer starts the timer of a rollback with the previous binary. It is enabled, so that it starts with the machine.
func (f files) startTimer(ctx context.Context, s state, timeout time.Duration) error {
	// systemd forgets the service with its timer, also one that has failed: OnUnitInactiveSec would count from the last upgrade's.
	service := "[Unit]\nDescription=Roll back the upgrade of the Drover system-agent\nCollectMode=inactive-or-failed\n" +
		"\n[Service]\nType=oneshot\nExecStart=" +
		strings.Join([]string{f.version(s.Previous), RollbackCommand, "--state-directory", f.stateDirectory, "--unit-directory", f.unitDirectory},
			" ") + "\n"
	// OnActiveSec counts again after a boot. A rollback that fails is retried, after the last of these delays every hour.
	timer := "[Unit]\nDescription=Roll back the Drover system-agent unless it reaches the hub\n\n[Timer]\nAccuracySec=1\n"
	for _, delay := range []time.Duration{0, time.Minute, 5 * time.Minute, 30 * time.Minute} {
		timer += fmt.Sprintf("OnActiveSec=%d\n", max(1, int64((timeout+delay)/time.Second)))
	}
	timer += "OnUnitInactiveSec=3600\n\n[Install]\nWantedBy=timers.target\n"
	if err := f.host.WriteFile(f.servicePath(), []byte(service), hostfs.WithMode(0o644)); err != nil {
		return fmt.Errorf("writing the rollback unit: %w", err)
	}
	if err := f.host.WriteFile(f.timerPath(), []byte(timer), hostfs.WithMode(0o644)); err != nil {
		return fmt.Errorf("writing the rollback timer: %w", err)
	}
	if err := f.host.MkdirAll(filepath.Dir(f.wantsPath()), hostfs.WithMode(0o755)); err != nil {
		return fmt.Errorf("enabling the rollback timer: %w", err)
	}
	if err := f.host.Symlink(f.timerPath(), f.wantsPath()); err != nil {
		return fmt.Errorf("enabling the rollback timer: %w", err)
	}
	if _, err := f.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	_, err := f.systemctl(ctx, "restart", RollbackUnit+".timer")
	return err
}

// cleanUp removes the timer, if there is one, and old binaries.
func (f files) cleanUp(ctx context.Context, s state) error {
	if f.exists(f.timerPath()) {
		if _, err := f.systemctl(ctx, "stop", RollbackUnit+".timer"); err != nil && !errors.Is(err, errNotLoaded) {
			return err
		}
	}
	removed := false
	for _, path := range []string{f.wantsPath(), f.timerPath(), f.servicePath()} {
		if !f.exists(path) {
			continue
		}
		if err := f.host.Remove(path); err != nil {
			return fmt.Errorf("removing the rollback unit: %w", err)
		}
		removed = true
	}
	if removed {
		if _, err := f.systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	return f.prune(s)
}

// Rollback puts the previous agent back and restarts its unit, unless the upgrade has ended. The timer runs it, with the previous binary.
// It is safe to be interrupted and run again.
func Rollback(ctx context.Context, h host.Host, stateDirectory, unitDirectory string, environment []string) error {
	f := files{host: h, stateDirectory: stateDirectory, unitDirectory: unitDirectory, environment: environment}
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	s, err := f.readState()
	if err != nil {
		return err
	}
	f.program = s.Program
	switch installed := f.checksumOf(s.Program); {
	case s.Phase == phaseRolledBack && installed == s.Previous:
		// It was interrupted before the agent was restarted, or before it could clean up.
	case installed != "" && installed != s.New || s.Phase != phaseTrial && s.Phase != phaseRolledBack:
		// It has ended, or not begun, or somebody has installed another agent. The agent itself finds out which.
		return f.cleanUp(ctx, s)
	case s.Phase == phaseTrial:
		s.Phase = phaseRolledBack
		s.Reason = fmt.Sprintf("version %s did not reach the hub within %s%s", s.NewVersion, s.Timeout, f.describe(ctx, s.Unit))
		if err := f.writeState(s); err != nil {
			return err
		}
	}
	if err := f.restore(s); err != nil {
		return err
	}
	// A service that somebody has stopped stays stopped.
	if _, err := f.systemctl(ctx, "try-restart", s.Unit); err != nil {
		return err
	}
	return f.cleanUp(ctx, s)
}

// describe says what systemd knows of the new agent.
func (f files) describe(ctx context.Context, unit string) string {
	out, err := f.systemctl(ctx, "show", "--property=SubState,NRestarts,Result,ExecMainStatus,StatusText", unit)
	if err != nil {
		return ""
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	text := fmt.Sprintf(": service is %s, restarted %s times", values["SubState"], values["NRestarts"])
	if values["Result"] != "success" {
		text += fmt.Sprintf(", result %s, exit status %s", values["Result"], values["ExecMainStatus"])
	}
	if values["StatusText"] != "" {
		text += ", " + values["StatusText"]
	}
	return text
}

// errNotLoaded is wrapped by systemctl's error for a unit that does not exist.
var errNotLoaded = errors.New("unit not loaded")

// exitNotLoaded is the exit code of systemctl for such a unit.
const exitNotLoaded = 5

func (f files) systemctl(ctx context.Context, args ...string) (string, error) {
	result, err := f.host.Run(ctx, run.Command{Path: "systemctl", Args: args, Env: f.environment, Timeout: programTimeout})
	if err != nil {
		return "", fmt.Errorf("running systemctl %s: %w", args[0], err)
	}
	if result.ExitCode == exitNotLoaded {
		return "", fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), errNotLoaded)
	}
	if result.ExitCode != 0 {
		return "", fmt.Errorf("systemctl %s: exit code %d: %s", strings.Join(args, " "), result.ExitCode,
			strings.TrimSpace(string(result.Stderr)))
	}
	return string(result.Stdout), nil
}
