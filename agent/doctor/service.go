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
	unitName = "rancher-system-agent"
	// interlockTime is for how long the agent heeds an install script's wish.
	interlockTime = 5 * time.Minute
	// manyRestarts is how often a service may be started anew before that is worth a word.
	manyRestarts = 5
	lookAtLog    = "journalctl -u " + unitName + " tells why"
)

func checkAgent(_ context.Context, m Machine) []Result {
	switch {
	case m.Agent != nil:
		return []Result{{"agent", OK, fmt.Sprintf("version %s runs as process %d", m.Agent.Version, m.Agent.PID), ""}}
	case m.AgentErr == nil || m.ConfigErr != nil:
		return []Result{{"agent", Skipped, "without a configuration it is not known where to ask", ""}}
	case errors.Is(m.AgentErr, control.ErrNotRunning):
		return []Result{{"agent", Problem, m.AgentErr.Error(), "systemctl start " + unitName + "; " + lookAtLog}}
	}
	return []Result{{"agent", Warning, m.AgentErr.Error(), ""}}
}

// checkService asks systemd about the unit.
func checkService(ctx context.Context, m Machine) []Result {
	if !m.exists("run/systemd/system") {
		return []Result{{"service", Warning, "this machine was not started by systemd", "the agent needs systemd to be started at boot, and instructions end with it"}}
	}
	if m.Run == nil {
		return nil
	}
	out, err := m.Run(ctx, "systemctl", "show", unitName, "-p", "LoadState,ActiveState,SubState,UnitFileState,NRestarts")
	if err != nil {
		return []Result{{"service", Skipped, "systemctl does not answer: " + err.Error(), ""}}
	}
	unit := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found {
			unit[key] = value
		}
	}
	r := Result{"service", OK, fmt.Sprintf("%s (%s), %s", unit["ActiveState"], unit["SubState"], unit["UnitFileState"]), ""}
	restarts, _ := strconv.Atoi(unit["NRestarts"])
	switch {
	case unit["LoadState"] != "loaded":
		r.Verdict, r.Seen, r.Advice = Problem, "the unit "+unitName+" is not installed", "system-agent join installs it"
	case unit["ActiveState"] != "active":
		r.Verdict, r.Advice = Problem, "systemctl start "+unitName+"; "+lookAtLog
	case restarts > manyRestarts:
		r.Verdict, r.Seen, r.Advice = Warning, fmt.Sprintf("%s, started anew %d times", r.Seen, restarts), lookAtLog
	case unit["UnitFileState"] != "enabled":
		r.Verdict, r.Advice = Warning, "systemctl enable "+unitName+", or it will not run after the next boot"
	}
	return []Result{r}
}

// checkOthers finds a second agent: two on one machine undo each other's work.
func checkOthers(_ context.Context, m Machine) []Result {
	self, _ := os.Readlink(m.path("proc/self/ns/pid"))
	var found []string
	for _, pid := range m.processes() {
		// The kernel keeps 15 bytes of a name.
		if comm := m.read("proc", pid, "comm"); comm != "system-agent" && comm != "rancher-system-" {
			continue
		}
		args := strings.Split(m.read("proc", pid, "cmdline"), "\x00")
		if len(args) < 2 || args[1] != "run" && args[1] != "sentinel" {
			continue
		}
		if space, err := os.Readlink(m.path("proc", pid, "ns/pid")); err == nil && self != "" && space != self {
			continue // in a container, which is another machine
		}
		found = append(found, pid)
	}
	slices.Sort(found)
	switch len(found) {
	case 0, 1:
		return []Result{{"other agents", OK, "none", ""}}
	}
	return []Result{{"other agents", Problem, fmt.Sprintf("%d agents run, processes %s", len(found), strings.Join(found, ", ")),
		"stop all but the one of the service " + unitName}}
}

func checkConfig(_ context.Context, m Machine) []Result {
	if m.ConfigErr != nil {
		return []Result{{"configuration", Problem, m.ConfigErr.Error(), "correct " + m.ConfigFile + ", or system-agent join to write it anew"}}
	}
	results := []Result{{"configuration", OK, m.ConfigFile + " can be used", ""}}
	if m.Config.LocalEnabled {
		results = append(results, m.localPlans())
	}
	if !m.Config.RemoteEnabled {
		return results
	}
	if _, err := config.LoadConnection(m.Config.ConnectionInfoFile); err != nil {
		return append(results, Result{"connection info", Problem, err.Error(), registerAgain})
	}
	if _, err := m.hub(); err != nil {
		return append(results, Result{"connection info", Problem, err.Error(), registerAgain})
	}
	return append(results, Result{"connection info", OK, m.Config.ConnectionInfoFile + " can be used", ""})
}

// localPlans looks at the folder of local plans: whoever can write there is root.
func (m Machine) localPlans() Result {
	dir := m.Config.LocalPlanDirectory
	r := Result{"local plans", OK, dir + " can be written by root alone", ""}
	var stat unix.Stat_t
	switch err := unix.Lstat(m.path(dir), &stat); {
	case err != nil:
		r.Verdict, r.Seen, r.Advice = Warning, fmt.Sprintf("%s: %v", dir, err), "mkdir -m 0700 "+dir
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		r.Verdict, r.Seen, r.Advice = Problem, dir+" is no folder", "put a folder of root's in its place"
	case stat.Uid != uint32(os.Getuid()) || stat.Mode&0o022 != 0:
		r.Verdict, r.Advice = Problem, "chown root:root "+dir+" && chmod 0700 "+dir+", after looking at what is in it"
		r.Seen = fmt.Sprintf("%s belongs to %d with mode %04o: whoever may write there is root", dir, stat.Uid, stat.Mode&0o7777)
	}
	return r
}

// checkInterlocks finds files that nobody waits for any more.
func checkInterlocks(_ context.Context, m Machine) []Result {
	dir := m.Config.InterlockDirectory
	if dir == "" {
		return []Result{{"interlocks", Skipped, "not used", ""}}
	}
	var results []Result
	if info, err := os.Stat(m.path(dir, "restart-pending")); err == nil && m.Now().Sub(info.ModTime()) > interlockTime {
		results = append(results, Result{"interlocks", Warning, fmt.Sprintf("restart-pending is there since %s", info.ModTime().UTC().Format(time.RFC3339)),
			"an install script was cut off; when none runs, rm " + dir + "/restart-pending"})
	}
	if m.exists(dir, "applyinator-active") && !m.applies() {
		results = append(results, Result{"interlocks", Warning, "applyinator-active is there, and no agent applies a plan",
			"install scripts wait for it; the agent removes it when it starts, or rm " + dir + "/applyinator-active"})
	}
	if len(results) == 0 {
		results = append(results, Result{"interlocks", OK, "none left behind", ""})
	}
	return results
}

func (m Machine) applies() bool {
	return m.Agent != nil && slices.ContainsFunc(m.Agent.Sources, func(s engine.State) bool { return s.Doing == engine.DoingApply })
}

// checkContact tells when the agent last heard of its sources.
func checkContact(_ context.Context, m Machine) []Result {
	if m.Agent == nil {
		return nil
	}
	var results []Result
	for _, source := range m.Agent.Sources {
		r := Result{"contact with " + source.Source, OK, "there", ""}
		switch {
		case source.SourceError != "":
			r.Verdict, r.Advice = Problem, "the other answers about the hub tell more"
			r.Seen = fmt.Sprintf("lost since %s: %s", source.SourceErrorSince.UTC().Format(time.RFC3339), source.SourceError)
		case !source.Contacted:
			r.Verdict, r.Seen = Warning, "none yet since the agent started"
		}
		results = append(results, r)
	}
	return results
}
