// Package doctor finds the problems that keep an agent from working on this machine and says how to solve them. It checks what the agent
// knows: its service, configuration, connection, certificates, clock, disk space and the ports of the distribution. It does not check the
// kernel, cgroups and swap, which are the business of the distribution (k3s check-config, the kubelet's own errors).
//
// It only reads: it changes nothing, runs programs only through Machine.Output, and connects only to the hub and the name server.
package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/plans"
)

// UnitName is the systemd unit of the agent.
const UnitName = "rancher-system-agent"

// Verdict is the result of a check.
type Verdict string

// The verdicts, from good to bad.
const (
	// OK means that nothing is wrong.
	OK Verdict = "ok"
	// Skipped means that the check does not apply to this machine, or that its input is not available.
	Skipped Verdict = "skipped"
	// Warning means that the agent works, but that something may become a problem.
	Warning Verdict = "warning"
	// Problem means that the agent, or what it installs, does not work. doctor exits with code 1.
	Problem Verdict = "problem"
)

// Result is what a check has found about one thing.
type Result struct {
	// Check names what was checked.
	Check string `json:"check"`
	// Verdict is one of the constants.
	Verdict Verdict `json:"verdict"`
	// Message is what was found. The JSON key is that of the first version, for scripts.
	Message string `json:"seen"`
	// Advice is what to do; empty if there is nothing to do.
	Advice string `json:"advice,omitempty"`
}

func ok(check, message string) Result { return Result{Check: check, Verdict: OK, Message: message} }
func skipped(check, message string) Result {
	return Result{Check: check, Verdict: Skipped, Message: message}
}
func warning(check, message, advice string) Result {
	return Result{Check: check, Verdict: Warning, Message: message, Advice: advice}
}
func problem(check, message, advice string) Result {
	return Result{Check: check, Verdict: Problem, Message: message, Advice: advice}
}

// role is what the current plan makes of the machine.
type role string

// The roles; roleUnknown means that no plan says.
const (
	roleUnknown role = ""
	roleServer  role = "server"
	roleWorker  role = "worker"
)

// Machine is the input of the checks. A check whose input is missing is skipped.
type Machine struct {
	// Root is put before every path, such as /proc; empty is the real root directory. Tests set it.
	Root string
	// ConfigFile is the path of the agent's configuration.
	ConfigFile string
	// Config is the content of ConfigFile; the zero value if ConfigErr is set.
	Config config.Config
	// ConfigErr is why the configuration is invalid.
	ConfigErr error
	// Agent is the status of the running agent; nil if there is none.
	Agent *control.Status
	// AgentErr is why Agent is nil.
	AgentErr error
	// images are the images of the current plans, role is the machine's role in them; AddPlan sets both.
	images []string
	role   role
	// Environment is that of the agent, as NAME=value.
	Environment []string
	// EnvironmentFrom names the source of Environment in messages.
	EnvironmentFrom string
	// Output runs a program and returns its standard output.
	Output func(ctx context.Context, name string, args ...string) (string, error)
	// LookupHost resolves a name; nil is the machine's resolver.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// Statfs is statfs(2) unless it is set.
	Statfs func(path string, stat *unix.Statfs_t) error
	// Now is the clock; nil is that of the machine.
	Now func() time.Time
}

// AddPlan adds the images of a plan, and the role that its installation gives to the machine.
func (m *Machine) AddPlan(plan plans.Plan) {
	for _, one := range plan.PeriodicInstructions {
		m.addImage(one.Image)
	}
	for _, one := range plan.Instructions {
		m.addImage(one.Image)
		for _, pair := range one.Env {
			switch name, value, _ := strings.Cut(pair, "="); {
			case one.Image == "", name != "INSTALL_RKE2_EXEC" && name != "INSTALL_K3S_EXEC":
			case strings.HasPrefix(value, "agent"):
				m.role = roleWorker
			case strings.HasPrefix(value, "server"):
				m.role = roleServer
			}
		}
	}
}

func (m *Machine) addImage(image string) {
	if image != "" {
		m.images = append(m.images, image)
	}
}

// checkTimeout bounds each check.
const checkTimeout = 15 * time.Second

type check struct {
	name string
	run  func(ctx context.Context, m Machine) []Result
}

// checks are all checks, in the order of their results.
var checks = []check{
	{"agent", checkAgent},
	{"service", checkService},
	{"other agents", checkOtherAgents},
	{"configuration", checkConfig},
	{"interlocks", checkInterlocks},
	{"hub contact", checkContact},
	{"hub", checkHub},
	{"proxy", checkProxy},
	{"DNS", checkDNS},
	{"disk", checkDisk},
	{"ports", checkPorts},
}

// Run runs all checks concurrently. A check that exceeds its time is a result like any other.
func Run(ctx context.Context, m Machine) []Result {
	m.setDefaults()
	found := make([][]Result, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { found[i] = c.runWithTimeout(ctx, m, checkTimeout) })
	}
	wg.Wait()
	var all []Result
	for _, results := range found {
		all = append(all, results...)
	}
	return all
}

// runWithTimeout abandons a check that does not return in time: a file system that hangs must not hide the other results.
func (c check) runWithTimeout(ctx context.Context, m Machine, timeout time.Duration) []Result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done := make(chan []Result, 1)
	go func() { done <- c.run(ctx, m) }()
	select {
	case results := <-done:
		return results
	case <-time.After(timeout + timeout/4):
		return []Result{warning(c.name, fmt.Sprintf("no result within %s", timeout), "check whether a file system or the network hangs")}
	}
}

func (m *Machine) setDefaults() {
	if m.Now == nil {
		m.Now = time.Now
	}
	if m.LookupHost == nil {
		m.LookupHost = net.DefaultResolver.LookupHost
	}
	if m.Statfs == nil {
		m.Statfs = unix.Statfs
	}
}

// path is an absolute path below Root.
func (m Machine) path(parts ...string) string {
	return filepath.Join(append([]string{"/", m.Root}, parts...)...)
}

// read returns the content of a small file without surrounding white space; empty if it cannot be read.
func (m Machine) read(parts ...string) string {
	raw, err := os.ReadFile(m.path(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func (m Machine) exists(parts ...string) bool {
	_, err := os.Stat(m.path(parts...))
	return err == nil
}

// Variable returns the value of the first of the named variables that is set and not empty. env is a list of NAME=value, of which the last
// one counts.
func Variable(env []string, names ...string) string {
	value := ""
	for _, name := range names {
		for _, pair := range env {
			if v, found := strings.CutPrefix(pair, name+"="); found && v != "" {
				value = v
			}
		}
		if value != "" {
			break
		}
	}
	return value
}

// Worst returns Problem, Warning or OK.
func Worst(results []Result) Verdict {
	worst := OK
	for _, r := range results {
		switch r.Verdict {
		case Problem:
			return Problem
		case Warning:
			worst = Warning
		}
	}
	return worst
}
