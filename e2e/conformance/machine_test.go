//go:build conformance

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// restartPause is RestartSec of the service's unit.
const restartPause = 5 * time.Second

// machine is a folder in which an agent runs as a process, with a plan Secret of its own.
type machine struct {
	*recorder
	t testing.TB
	// dir is the folder. Instructions know it as $M.
	dir       string
	namespace string
	proxy     *proxy
	// config is the configuration file, args are those of the agent, env are variables beside the usual ones; all for the next start.
	config map[string]any
	args   []string
	env    []string
	// patience is for what comes at some time.
	patience time.Duration

	mu       sync.Mutex
	versions []state
	changed  chan struct{}
	process  *process
	exits    int
}

// process is one life of the agent.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	wanted bool // that it ends
}

// machines are those that run, by namespace.
var machines sync.Map

func newMachine(t testing.TB) *machine {
	dir, err := os.MkdirTemp("", "conf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{recorder: &recorder{}, t: t, dir: dir, changed: make(chan struct{}, 1), proxy: newProxy(t), args: []string{"sentinel"},
		patience: options.patience}
	t.Cleanup(func() {
		m.proxy.CloseClientConnections()
		m.proxy.Close()
	})
	m.config = obj{
		"workDirectory": m.path("var/work"), "appliedPlanDirectory": m.path("var/applied"), "interlockDirectory": m.path("var/interlock"),
		"localPlanDirectory": m.path("var/plans"), "remoteEnabled": true, "connectionInfoFile": m.path("rancher2_connection_info.json"),
		"imagesDirectory": m.path("images"), "agentRegistriesFile": m.path("registries.yaml"),
		"imageCredentialProviderConfig":       m.path("credentialprovider/config.yaml"),
		"imageCredentialProviderBinDirectory": m.path("credentialprovider/bin"),
		"socket":                              m.path("agent.sock"), // of agents that have one: machines must not share it
	}
	for _, folder := range []string{"var/interlock", "var/plans", "images"} {
		if err := os.MkdirAll(m.path(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.register()
	return m
}

func (m *machine) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(m.dir, name)
}

func (m *machine) writeMode(name, text string, mode os.FileMode) {
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.Fatalf("%s", err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.Fatalf("%s", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		m.Fatalf("%s", err)
	}
}

func (m *machine) write(name, text string) { m.writeMode(name, text, 0o600) }

func (m *machine) read(name string) string {
	raw, _ := os.ReadFile(m.path(name))
	return string(raw)
}

func (m *machine) exists(name string) bool {
	_, err := os.Lstat(m.path(name))
	return err == nil
}

// lines is how many lines a file has, by which instructions tell how often they ran.
func (m *machine) lines(name string) int { return strings.Count(m.read(name), "\n") }

// command is the agent with some arguments.
func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command(options.agent, args...)
	cmd.Dir = m.dir
	cmd.Env = append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TZ=UTC", "M=" + m.dir, "CATTLE_LOGLEVEL=debug",
		"CATTLE_AGENT_CONFIG=" + m.path("config.yaml"),
	}, m.env...)
	return cmd
}

// start starts the agent, and starts it again five seconds after it ended unasked, as its unit does.
func (m *machine) start() {
	raw, err := json.Marshal(m.config)
	if err != nil {
		m.Fatalf("%s", err)
	}
	m.write("config.yaml", string(raw)) // JSON is YAML
	m.spawn()
}

func (m *machine) spawn() {
	log, err := os.OpenFile(m.path("agent.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		m.Errorf("%s", err)
		return
	}
	defer log.Close()
	p := &process{cmd: m.command(m.args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // also when the suite is killed
	if err := p.cmd.Start(); err != nil {
		m.Errorf("starting the agent: %s", err)
		return
	}
	m.mu.Lock()
	m.process = p
	m.mu.Unlock()
	go func() {
		_ = p.cmd.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		close(p.ended)
		if p.wanted {
			return
		}
		m.exits++
		time.AfterFunc(restartPause, func() {
			m.mu.Lock()
			wanted := p.wanted
			m.mu.Unlock()
			if !wanted {
				m.spawn()
			}
		})
	}()
}

// signal ends the agent for good and tells how long that took and what its exit code was; -1 for one that was killed.
func (m *machine) signal(with syscall.Signal) (time.Duration, int) {
	m.mu.Lock()
	p := m.process
	if p == nil {
		m.mu.Unlock()
		return 0, 0
	}
	p.wanted = true
	m.process = nil
	m.mu.Unlock()
	begun := time.Now()
	_ = p.cmd.Process.Signal(with)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
	return time.Since(begun), p.cmd.ProcessState.ExitCode()
}

func (m *machine) kill() { m.signal(syscall.SIGKILL) }

func (m *machine) restart() {
	m.signal(syscall.SIGTERM)
	m.start()
}

// crashes is how often the agent ended unasked.
func (m *machine) crashes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exits
}

func (m *machine) pid() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return 0
	}
	return m.process.cmd.Process.Pid
}

// end is after the rule, whatever came of it.
func (m *machine) end() {
	machines.Delete(m.namespace)
	m.mu.Lock()
	p := m.process
	m.mu.Unlock()
	if p == nil {
		return
	}
	m.mu.Lock()
	p.wanted = true
	m.mu.Unlock()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// within waits until something has become so. It looks whenever the Secret changes, and every now and then for the rest.
func (m *machine) within(d time.Duration, what string, ready func(state) bool) state {
	deadline := time.After(d)
	for {
		if now := m.now(); ready(now) {
			return now
		}
		select {
		case <-m.changed:
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			m.Fatalf("%s: did not come within %s", what, d)
		}
	}
}

func (m *machine) until(what string, ready func(state) bool) state {
	return m.within(m.patience, what, ready)
}

// never fails when something becomes so after all, or when the agent does not even look at its Secret.
func (m *machine) never(d time.Duration, what string, happened func(state) bool) {
	if m.config["remoteEnabled"] == true {
		m.until("a look of the agent at its Secret", func(state) bool { return m.proxy.sawToken() })
	}
	m.silent(d, what, happened)
}

// rests fails when something does not stay as it is for a while. An agent that stood still for some seconds may have had something to do
// yet, so that it has three tries, each for twice as long: what happens again and again is seen all the same.
func (m *machine) rests(d time.Duration, what string, value func() string) {
	for tries := 1; ; tries++ {
		before := value()
		time.Sleep(d)
		after := value()
		if after == before {
			return
		}
		if tries == 3 {
			m.Fatalf("%s does not rest: it was %q %s ago and is %q", what, before, d, after)
		}
		d *= 2
	}
}

// silent is never for an agent that is not to be heard of.
func (m *machine) silent(d time.Duration, what string, happened func(state) bool) {
	deadline := time.After(d)
	for {
		if happened(m.now()) {
			m.Fatalf("%s", what)
		}
		select {
		case <-m.changed:
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			return
		}
	}
}

// explain tells those who look for the reason of a failure what is there to be seen.
func (m *machine) explain() string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "--- Secret\n%s--- the agent ended unasked %d times and says last:\n", m.now(), m.crashes())
	lines := strings.Split(strings.TrimSpace(m.read("agent.log")), "\n")
	out.WriteString(strings.Join(lines[max(len(lines)-25, 0):], "\n"))
	return out.String()
}
