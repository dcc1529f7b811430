package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine"
)

const (
	// interlockTimeout is how long the agent honors the file restart-pending of an install script.
	interlockTimeout = 5 * time.Minute
	// maxRestarts is how many restarts of the service are no reason for a warning.
	maxRestarts = 5

	seeLog = "see journalctl -u " + UnitName
)

func checkAgent(_ context.Context, m Machine) []Result {
	switch {
	case m.Agent != nil:
		return []Result{ok("agent", fmt.Sprintf("version %s, PID %d", m.Agent.Version, m.Agent.PID))}
	case m.AgentErr == nil || m.ConfigErr != nil:
		return []Result{skipped("agent", "the socket is unknown without a configuration")}
	case errors.Is(m.AgentErr, control.ErrNotRunning):
		return []Result{problem("agent", m.AgentErr.Error(), "systemctl start "+UnitName+"; "+seeLog)}
	}
	return []Result{warning("agent", m.AgentErr.Error(), "systemctl restart "+UnitName+"; "+seeLog)}
}

// checkService reads the state of the unit from systemd.
func checkService(ctx context.Context, m Machine) []Result {
	if !m.exists("run/systemd/system") {
		return []Result{warning("service", "systemd is not running",
			"the agent needs systemd to start at boot, and to keep instructions running when it restarts")}
	}
	if m.Output == nil {
		return nil
	}
	out, err := m.Output(ctx, "systemctl", "show", UnitName, "-p", "LoadState,ActiveState,SubState,UnitFileState,NRestarts")
	if err != nil {
		return []Result{skipped("service", "systemctl failed: "+err.Error())}
	}
	unit := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found {
			unit[key] = value
		}
	}
	state := fmt.Sprintf("%s (%s), %s", unit["ActiveState"], unit["SubState"], unit["UnitFileState"])
	restarts, _ := strconv.Atoi(unit["NRestarts"])
	switch {
	case unit["LoadState"] == "masked":
		return []Result{problem("service", "unit "+UnitName+" is masked, "+unit["ActiveState"],
			"systemctl unmask "+UnitName+" && systemctl enable --now "+UnitName)}
	case unit["LoadState"] != "loaded":
		return []Result{problem("service", "unit "+UnitName+" is not installed", "install it with system-agent join")}
	case unit["ActiveState"] != "active":
		return []Result{problem("service", state, "systemctl start "+UnitName+"; "+seeLog)}
	case restarts > maxRestarts:
		return []Result{warning("service", fmt.Sprintf("%s, restarted %d times", state, restarts), seeLog)}
	case unit["UnitFileState"] != "enabled":
		return []Result{warning("service", state, "systemctl enable "+UnitName+", or it does not start at boot")}
	}
	return []Result{ok("service", state)}
}

// checkOtherAgents finds a second agent: two on one machine revert each other's changes.
func checkOtherAgents(_ context.Context, m Machine) []Result {
	self, _ := os.Readlink(m.path("proc/self/ns/pid"))
	var pids []string
	for _, pid := range m.processes() {
		// The kernel keeps 15 bytes of a name.
		if comm := m.read("proc", pid, "comm"); comm != "system-agent" && comm != "rancher-system-" {
			continue
		}
		args := strings.Split(m.read("proc", pid, "cmdline"), "\x00")
		if len(args) < 2 || args[1] != "run" && args[1] != "sentinel" {
			continue
		}
		if namespace, err := os.Readlink(m.path("proc", pid, "ns/pid")); err == nil && self != "" && namespace != self {
			continue // in a container, which is another machine
		}
		pids = append(pids, pid)
	}
	if len(pids) < 2 {
		return []Result{ok("other agents", "none")}
	}
	slices.Sort(pids)
	return []Result{problem("other agents", fmt.Sprintf("%d agents are running, PIDs %s", len(pids), strings.Join(pids, ", ")),
		"stop all but that of the service "+UnitName)}
}

func checkConfig(_ context.Context, m Machine) []Result {
	if m.ConfigErr != nil {
		return []Result{problem("configuration", m.ConfigErr.Error(), "correct "+m.ConfigFile+", or replace it with system-agent join")}
	}
	results := []Result{ok("configuration", m.ConfigFile+" is valid")}
	if unknown, err := config.UnknownKeys(m.ConfigFile); err == nil && len(unknown) > 0 {
		results = append(results, warning("configuration", "keys without effect: "+strings.Join(unknown, ", "),
			"correct or remove them in "+m.ConfigFile))
	}
	if m.Config.LocalEnabled {
		directory := m.checkLocalPlans()
		results = append(results, directory)
		if directory.Verdict == OK {
			results = append(results, m.checkPlanFiles(m.Config.LocalPlanDirectory)...)
		}
	}
	if !m.Config.RemoteEnabled {
		return results
	}
	_, err := config.LoadConnection(m.Config.ConnectionInfoFile)
	if err == nil {
		_, err = m.hub()
	}
	if err != nil {
		return append(results, problem("connection info", err.Error(), registerAgain))
	}
	return append(results, ok("connection info", m.Config.ConnectionInfoFile+" is valid"))
}

// checkLocalPlans checks the directory of local plans: who can write there is root.
func (m Machine) checkLocalPlans() Result {
	const name = "local plans"
	dir := m.Config.LocalPlanDirectory
	var stat unix.Stat_t
	switch err := unix.Lstat(m.path(dir), &stat); {
	case err != nil:
		return warning(name, fmt.Sprintf("%s: %v", dir, err), "mkdir -m 0700 "+dir)
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return problem(name, dir+" is not a directory", "replace it by a directory of root")
	case stat.Uid != uint32(os.Getuid()) || stat.Mode&0o022 != 0:
		return problem(name, fmt.Sprintf("%s has owner %d and mode %04o: who can write there is root", dir, stat.Uid, stat.Mode&0o7777),
			"review its content, then chown root:root "+dir+" && chmod 0700 "+dir)
	}
	return ok(name, dir+" is writable only for root")
}

// checkInterlocks finds stale files with which install script and agent wait for each other.
func checkInterlocks(_ context.Context, m Machine) []Result {
	dir := m.Config.InterlockDirectory
	if dir == "" {
		return []Result{skipped("interlocks", "not configured")}
	}
	var results []Result
	if info, err := os.Stat(m.path(dir, "restart-pending")); err == nil && m.Now().Sub(info.ModTime()) > interlockTimeout {
		results = append(results, warning("interlocks", "restart-pending exists since "+info.ModTime().UTC().Format(time.RFC3339),
			"an install script was interrupted; if none is running: rm "+dir+"/restart-pending"))
	}
	if m.exists(dir, "applyinator-active") && !m.applying() {
		results = append(results, warning("interlocks", "applyinator-active exists, but no agent applies a plan",
			"install scripts wait for it; the agent removes it at its start, or: rm "+dir+"/applyinator-active"))
	}
	if len(results) == 0 {
		results = append(results, ok("interlocks", "none stale"))
	}
	return results
}

func (m Machine) applying() bool {
	return m.Agent != nil && slices.ContainsFunc(m.Agent.Sources, func(s engine.State) bool { return s.Phase == engine.PhaseApplying })
}

// checkContact reports whether the running agent reaches its sources.
func checkContact(_ context.Context, m Machine) []Result {
	if m.Agent == nil {
		return nil
	}
	var results []Result
	for _, source := range m.Agent.Sources {
		if source.Source != engine.HubName {
			results = append(results, planFile(source))
			continue
		}
		name := "contact with " + source.Source
		switch {
		case source.SourceError != "":
			results = append(results, problem(name,
				fmt.Sprintf("lost since %s: %s", source.SourceErrorSince.UTC().Format(time.RFC3339), source.SourceError), "see the checks of the hub"))
		case !source.Contacted:
			results = append(results, warning(name, "none since the agent has started", "see the checks of the hub"))
		default:
			results = append(results, ok(name, "connected"))
		}
	}
	return results
}

// planFile reports whether the running agent can use the file with a local plan.
func planFile(source engine.State) Result {
	name := "plan file of " + source.Source
	switch {
	case source.SourceError != "":
		return problem(name, fmt.Sprintf("invalid since %s: %s", source.SourceErrorSince.UTC().Format(time.RFC3339), source.SourceError),
			"correct the file, its owner or its mode; system-agent plan diff <file> shows what it would do")
	case !source.Contacted:
		return skipped(name, "not read yet")
	}
	return ok(name, "valid")
}

// processes lists the PIDs of the machine.
func (m Machine) processes() []string {
	entries, _ := os.ReadDir(m.path("proc"))
	var pids []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, entry.Name())
		}
	}
	return pids
}
