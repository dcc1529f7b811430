// Package doctor looks for what keeps an agent, or what it installs, from working on this machine, and says what to do about it. It only
// looks: it changes nothing, starts no program but through Machine.Run, and talks to nobody but the hub and the machine's resolver.
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
)

// Verdict is what a check comes to.
type Verdict string

// The verdicts, from good to bad. Skipped means that the question does not arise on this machine, or cannot be answered.
const (
	OK      Verdict = "ok"
	Skipped Verdict = "skipped"
	Warning Verdict = "warning"
	Problem Verdict = "problem"
)

// Result is one answer.
type Result struct {
	// Check is what was looked at.
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Seen is what was found, Advice what to do about it; Advice is empty where nothing is to be done.
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"`
}

// Role is what the machine does in its cluster, as far as its plan tells.
type Role string

// The roles.
const (
	RoleUnknown Role = ""
	RoleServer  Role = "server"
	RoleWorker  Role = "worker"
)

// Machine is what is looked at. What is empty is skipped.
type Machine struct {
	// Root stands before every path of the machine's own, such as /proc; empty is the machine itself.
	Root string
	// ConfigFile, Config and ConfigErr are the configuration of the agent, and why it cannot be used.
	ConfigFile string
	Config     config.Config
	ConfigErr  error
	// Agent is what a running agent answers, AgentErr why none does.
	Agent    *control.Status
	AgentErr error
	// Images are those of the present plan; Role is what the plan makes of the machine.
	Images []string
	Role   Role
	// Environment is that of the agent, as NAME=value; EnvironmentFrom says where it was found.
	Environment     []string
	EnvironmentFrom string
	// Run runs a program and gives what it wrote.
	Run func(ctx context.Context, name string, args ...string) (string, error)
	// LookupHost resolves a name.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// Statfs is statfs(2).
	Statfs func(path string, stat *unix.Statfs_t) error
	Now    func() time.Time
}

// timeout is for each check.
const timeout = 15 * time.Second

// check looks at one thing; its results come in the order of the list.
type check struct {
	name string
	look func(ctx context.Context, m Machine) []Result
}

var checks = []check{
	{"agent", checkAgent},
	{"service", checkService},
	{"other agents", checkOthers},
	{"configuration", checkConfig},
	{"interlocks", checkInterlocks},
	{"hub contact", checkContact},
	{"hub", checkHub},
	{"proxy", checkProxy},
	{"DNS", checkDNS},
	{"disk", checkDisk},
	{"ports", checkPorts},
	{"cgroups", checkCgroups},
	{"kernel modules", checkModules},
	{"forwarding", checkForwarding},
	{"swap", checkSwap},
	{"security modules", checkSecurity},
}

// Examine runs all checks side by side. A check that takes too long is a result like any other.
func Examine(ctx context.Context, m Machine) []Result {
	m.defaults()
	found := make([][]Result, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { found[i] = c.within(ctx, m, timeout) })
	}
	wg.Wait()
	var all []Result
	for _, some := range found {
		all = append(all, some...)
	}
	return all
}

// within gives up on a check that does not come back: a file system that hangs must not keep the other answers.
func (c check) within(ctx context.Context, m Machine, most time.Duration) []Result {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	done := make(chan []Result, 1)
	go func() { done <- c.look(ctx, m) }()
	select {
	case results := <-done:
		return results
	case <-time.After(most + most/4):
		return []Result{{c.name, Warning, fmt.Sprintf("no answer within %s", most), "look whether a file system or the network hangs"}}
	}
}

func (m *Machine) defaults() {
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

// path is a path of the machine's own.
func (m Machine) path(parts ...string) string {
	return filepath.Join(append([]string{"/", m.Root}, parts...)...)
}

// read reads a small file of the machine's own; empty where there is none.
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

func (m Machine) variable(names ...string) string {
	value := ""
	for _, name := range names {
		for _, pair := range m.Environment {
			if v, found := strings.CutPrefix(pair, name+"="); found && v != "" {
				value = v // the last one wins
			}
		}
		if value != "" {
			return value
		}
	}
	return ""
}

// Worst is the worst verdict of all.
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
