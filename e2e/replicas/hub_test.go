//go:build e2e

package replicas

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/loopback"
)

// The times that the hubs are given to stop in: shorter than the defaults, so that the test does not take long.
const (
	drainDelay = time.Second
	drainTime  = 4 * time.Second
)

// program is a process with a log.
type program struct {
	name    string
	command []string
	env     []string
	log     string

	// logged is how much was in the log when the process was started.
	logged int64
	cmd    *exec.Cmd
	ended  chan struct{}
}

func (p *program) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if info, err := log.Stat(); err == nil {
		p.logged = info.Size()
	}
	p.cmd = exec.Command(p.command[0], p.command[1:]...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, append(os.Environ(), p.env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", p.name, err)
	}
	cmd, ended := p.cmd, make(chan struct{})
	p.ended = ended
	go func() { _ = cmd.Wait(); close(ended) }()
}

func (p *program) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("sending %s to %s: %v", s, p.name, err)
	}
}

// wait waits until the process has ended, and returns how long that took.
func (p *program) wait(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	begin := time.Now()
	select {
	case <-p.ended:
	case <-time.After(limit):
		t.Fatalf("%s has not ended after %s, see %s", p.name, limit, p.log)
	}
	return time.Since(begin)
}

// lines are what the process has logged since it was started last.
func (p *program) lines(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(raw[p.logged:]), "\n")
}

func (p *program) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// hub is a replica.
type hub struct {
	program
	gateway, webhooks, health string
}

func newHub(t *testing.T, dir, name string) *hub {
	t.Helper()
	return &hub{
		program: program{name: name, log: filepath.Join(dir, name+".log")},
		gateway: freeAddress(t), webhooks: freeAddress(t), health: freeAddress(t),
	}
}

// isLeader reports whether the replica has been elected.
func (h *hub) isLeader(t *testing.T) bool {
	t.Helper()
	return slices.ContainsFunc(h.lines(t), func(line string) bool { return strings.Contains(line, `msg="Hub is ready"`) })
}

// configure is for when the addresses of the balancers are known.
func (h *hub) configure(kubeconfig, serverURL, webhookURL string) {
	h.command = []string{
		binary("hub"), "serve", "--kubeconfig", kubeconfig, "--data-dir", filepath.Dir(h.log),
		"--listen", h.gateway, "--server-url", serverURL, "--webhook-listen", h.webhooks, "--webhook-url", webhookURL,
		"--health-listen", h.health, "--metrics-listen", "0",
		"--drain-delay", drainDelay.String(), "--drain-time", drainTime.String(),
	}
}

func binary(name string) string {
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		panic(fmt.Sprintf("this package has no directory: %v", err))
	}
	return path
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := loopback.FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return address
}
