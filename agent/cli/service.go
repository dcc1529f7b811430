package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/metrics"
)

const (
	// stopStep and stopMost bound how long the service manager is asked for patience while the agent stops.
	stopStep = 5 * time.Second
	stopMost = 2 * time.Minute
	// restAfter is how long nothing has changed when the agent gives memory back.
	restAfter = 10 * time.Second
	// statusBytes is the longest status line.
	statusBytes = 240
)

// worker is an engine as the service sees it.
type worker interface {
	State() engine.State
	Alive(now time.Time) bool
}

// service tells the service manager how the agent is: that it is up, what it does, that its executors live, and that it stops. It
// speaks when an engine does, so that nothing is asked for again and again.
type service struct {
	notify   func(state string)
	log      *slog.Logger
	interval time.Duration // of the watchdog; 0 is none

	mu      sync.Mutex
	silent  map[string]bool // engines that are not up yet
	workers []worker
	news    chan struct{}
	line    string // the last status
}

func newService(notify func(string), interval time.Duration, log *slog.Logger) *service {
	return &service{notify: notify, interval: interval, log: log, silent: map[string]bool{}, news: make(chan struct{}, 1)}
}

// host gives the machine that an engine of this name works with. What the engine tells the service manager comes here.
func (s *service) host(machine host.Host, name string) host.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent[name] = true
	return member{Host: machine, name: name, service: s}
}

// add adds an engine.
func (s *service) add(w worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = append(s.workers, w)
}

// remove takes an engine away whose plan is gone.
func (s *service) remove(w worker, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = slices.DeleteFunc(s.workers, func(other worker) bool { return other == w })
	delete(s.silent, name)
}

// engines are those that there are now, for the metrics.
func (s *service) engines() []metrics.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]metrics.Engine, 0, len(s.workers))
	for _, w := range s.workers {
		out = append(out, w)
	}
	return out
}

// member is a machine on which one engine works.
type member struct {
	host.Host
	name    string
	service *service
}

// Notify takes an engine's word for that something has changed; what it is, its State tells.
func (m member) Notify(string) {
	m.service.mu.Lock()
	delete(m.service.silent, m.name)
	m.service.mu.Unlock()
	select {
	case m.service.news <- struct{}{}:
	default:
	}
}

// run speaks until stopped is done: the agent is then gone but for its last words.
func (s *service) run(ctx context.Context, stopped <-chan struct{}) {
	var watching sync.WaitGroup
	defer watching.Wait()
	var again <-chan time.Time
	if s.interval > 0 {
		watching.Go(func() { s.watchdog(ctx, stopped) })
		ticker := time.NewTicker(s.interval / 2)
		defer ticker.Stop()
		again = ticker.C
	}
	ready := false
	rest := time.NewTimer(restAfter)
	defer rest.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-stopped:
			return
		case <-again:
			s.tell(ready)
		case <-rest.C:
			s.rest()
		case <-s.news:
			rest.Reset(restAfter)
			if !ready && s.up() {
				ready = true
				s.notify("READY=1")
			}
			s.tell(ready)
		}
	}
	s.stop(stopped)
}

// rest is called once after something has happened and nothing else did since.
func (s *service) rest() {
	if err := host.GiveBackMemory(); err != nil {
		s.log.Debug("Memory cannot be given back", "error", err)
	}
}

// up tells whether every engine has spoken, which it does when it has read its journal.
func (s *service) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.silent) == 0
}

// all are the engines that there are now. They are asked without the lock: an engine that holds a lock of its own while it speaks must
// not meet one that is asked.
func (s *service) all() []worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.workers)
}

// tell sends the status line where it has changed.
func (s *service) tell(ready bool) {
	if !ready {
		return
	}
	var states []engine.State
	for _, w := range s.all() {
		states = append(states, w.State())
	}
	if line := statusLine(states); line != s.line {
		s.line = line
		s.notify("STATUS=" + line)
	}
}

// stop says that the agent stops, and asks for time as long as it has some to hope for.
func (s *service) stop(stopped <-chan struct{}) {
	s.notify("STOPPING=1\nSTATUS=Stopping")
	ticker := time.NewTicker(stopStep)
	defer ticker.Stop()
	began := time.Now()
	for {
		select {
		case <-stopped:
			return
		case now := <-ticker.C:
			if now.Sub(began) > stopMost {
				return
			}
			s.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (3 * stopStep).Microseconds()))
		}
	}
}

// statusLine says what the engines do, in one line for `systemctl status`.
func statusLine(states []engine.State) string {
	parts := make([]string, 0, len(states))
	for _, state := range states {
		text := describe(state)
		if len(states) > 1 && state.Source != "" {
			text = state.Source + ": " + text
		}
		parts = append(parts, text)
	}
	line := strings.Join(strings.Fields(strings.Join(parts, "; ")), " ")
	if len(line) > statusBytes {
		line = strings.ToValidUTF8(line[:statusBytes-3], "") + "..."
	}
	return line
}

func describe(s engine.State) string {
	text := ""
	switch plan := "plan " + s.Checksum[:min(len(s.Checksum), 12)]; {
	case s.Checksum == "":
		text = "Waiting for the first plan"
	case s.Doing == engine.DoingApply:
		text = "Applying " + plan + progress(s)
	case s.Doing == engine.DoingNothing && s.Last != nil && s.Last.Checksum == s.Checksum && !s.Last.Ended.IsZero():
		text = "Applied " + plan
		if !s.Last.Succeeded {
			text = "Failed to apply " + plan
		}
	case s.Doing == engine.DoingNothing:
		text = "At rest with " + plan
	default:
		text = strings.ToUpper(string(s.Doing[:min(1, len(s.Doing))])) + string(s.Doing[min(1, len(s.Doing)):]) + " with " + plan
		if s.Reason != "" {
			text += ": " + s.Reason
		}
	}
	if s.Unreported {
		text += ", not reported yet"
	}
	switch since := s.SourceErrorSince.UTC().Format(time.RFC3339); {
	case s.SourceError == "":
	case strings.HasPrefix(s.Source, localName+"/"):
		text += "; the file cannot be used since " + since
	default:
		text += "; the hub is away since " + since
	}
	return text
}

func progress(s engine.State) string {
	p, attempt := s.Progress, ""
	if s.Last != nil && s.Last.Number > 1 {
		attempt = fmt.Sprintf(", attempt %d", s.Last.Number)
	}
	switch {
	case p == nil:
		return attempt
	case p.Total == 0 || p.Phase == "":
		return attempt + ", " + string(p.Phase)
	}
	text := fmt.Sprintf("%s, %s %d of %d", attempt, p.Phase, p.Index+1, p.Total)
	if p.Name != "" {
		text += " (" + p.Name + ")"
	}
	return text
}

// ofTheManager are variables by which the service manager speaks with the agent. A program of a plan that found them would speak in the
// agent's name.
var ofTheManager = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "JOURNAL_STREAM",
	"INVOCATION_ID", "SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "MAINPID", "MANAGERPID"}

// forInstructions is the agent's environment without what is meant for the agent alone.
func forInstructions(environment []string) []string {
	var out []string
next:
	for _, e := range environment {
		for _, name := range ofTheManager {
			if strings.HasPrefix(e, name+"=") {
				continue next
			}
		}
		out = append(out, e)
	}
	return out
}
