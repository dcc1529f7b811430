package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/metrics"
	"github.com/drover-dev/drover/agent/upgrade"
	"github.com/drover-dev/drover/plans"
)

const (
	// While the agent stops, it extends the stop timeout of the service manager every extendInterval, for maxStopTime at most.
	extendInterval = 5 * time.Second
	maxStopTime    = 2 * time.Minute
	// idleTime is how long nothing must have changed before the agent returns memory to the kernel.
	idleTime = 10 * time.Second
	// maxStatusBytes bounds the status line.
	maxStatusBytes = 240
)

// service holds the engines of the agent and reports for them to the service manager (sd_notify): ready, status, watchdog, stopping. It
// reports when an engine has notified it of a change.
type service struct {
	notify func(state string)
	log    *slog.Logger
	// watchdogInterval is that of the unit; 0 is none.
	watchdogInterval time.Duration

	// upgrade returns the status of the last upgrade of the agent; nil without a hub.
	upgrade func() *upgrade.Status
	// replaced is set when the agent stops because the process executes another binary: the service goes on.
	replaced atomic.Bool

	mu sync.Mutex
	// starting holds the names of the engines that have not notified yet.
	starting map[string]bool
	engines  []metrics.Engine
	// changed has an element if an engine has notified since the last report.
	changed chan struct{}
	// status is the last status line.
	status string
}

func newService(notify func(string), watchdogInterval time.Duration, log *slog.Logger) *service {
	return &service{notify: notify, watchdogInterval: watchdogInterval, log: log, starting: map[string]bool{}, changed: make(chan struct{}, 1)}
}

// notifier returns what the engine with a name calls when it is up, and when it has changed; the service reads the change from State.
func (s *service) notifier(name string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting[name] = true
	return func() {
		s.mu.Lock()
		delete(s.starting, name)
		s.mu.Unlock()
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

func (s *service) add(e metrics.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engines = append(s.engines, e)
}

// remove removes the engine of a plan that was deleted.
func (s *service) remove(e metrics.Engine, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engines = slices.DeleteFunc(s.engines, func(other metrics.Engine) bool { return other == e })
	delete(s.starting, name)
}

// list returns the current engines. They are called without the lock: an engine may hold its own lock when it notifies.
func (s *service) list() []metrics.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.engines)
}

// agents returns the current engines by name, for the commands.
func (s *service) agents() map[string]control.Engine {
	out := map[string]control.Engine{}
	for _, e := range s.list() {
		if agent, ok := e.(control.Engine); ok {
			out[agent.State().Source] = agent
		}
	}
	return out
}

// run reports to the service manager until stopped is closed, which is when all engines have stopped after ctx is done.
func (s *service) run(ctx context.Context, stopped <-chan struct{}) {
	var watchdog sync.WaitGroup
	defer watchdog.Wait()
	var refresh <-chan time.Time
	if s.watchdogInterval > 0 {
		watchdog.Go(func() { s.watchdog(ctx, stopped) })
		ticker := time.NewTicker(s.watchdogInterval / 2)
		defer ticker.Stop()
		refresh = ticker.C
	}
	ready := false
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-stopped:
			return
		case <-refresh:
			s.reportStatus(ready)
		case <-idle.C:
			if err := host.ReleaseMemory(); err != nil {
				s.log.Debug("Returning memory to the kernel failed", "error", err)
			}
		case <-s.changed:
			idle.Reset(idleTime)
			if !ready && s.up() {
				ready = true
				s.notify("READY=1")
			}
			s.reportStatus(ready)
		}
	}
	s.stop(stopped)
}

// up is true if every engine has notified, which it does when it has read its journal.
func (s *service) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.starting) == 0
}

// reportStatus sends the status line if it has changed.
func (s *service) reportStatus(ready bool) {
	if !ready {
		return
	}
	var states []engine.State
	for _, e := range s.list() {
		states = append(states, e.State())
	}
	if status := statusLine(states); status != s.status {
		s.status = status
		s.notify("STATUS=" + status)
	}
}

// stop reports that the agent is stopping and extends the stop timeout until it has stopped.
func (s *service) stop(stopped <-chan struct{}) {
	if s.replaced.Load() {
		s.notify("STATUS=Executing the installed binary")
		<-stopped
		return
	}
	s.notify("STOPPING=1\nSTATUS=Stopping")
	ticker := time.NewTicker(extendInterval)
	defer ticker.Stop()
	started := time.Now()
	for {
		select {
		case <-stopped:
			return
		case now := <-ticker.C:
			if now.Sub(started) > maxStopTime {
				return
			}
			s.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (3 * extendInterval).Microseconds()))
		}
	}
}

// watchdog reports twice per interval that the agent is alive. It has its own goroutine that does not touch the disk: even a log line may
// wait for the disk, so another goroutine writes it.
func (s *service) watchdog(ctx context.Context, stopped <-chan struct{}) {
	ticker := time.NewTicker(s.watchdogInterval / 2)
	defer ticker.Stop()
	wasAlive := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-stopped:
			return
		case now := <-ticker.C:
			alive := s.alive(now)
			switch {
			case alive:
				s.notify("WATCHDOG=1")
			case wasAlive:
				go s.log.Error("Engine does not respond; the service manager will restart the agent")
			}
			wasAlive = alive
		}
	}
}

// alive is true if every engine is. An engine itself knows how long a hanging disk may stop it.
func (s *service) alive(now time.Time) bool {
	return !slices.ContainsFunc(s.list(), func(e metrics.Engine) bool { return !e.Alive(now) })
}

// statusLine is what the engines do, in one line for `systemctl status`.
func statusLine(states []engine.State) string {
	parts := make([]string, 0, len(states))
	for _, state := range states {
		text := engineStatus(state)
		if len(states) > 1 && state.Source != "" {
			text = state.Source + ": " + text
		}
		parts = append(parts, text)
	}
	line := strings.Join(strings.Fields(strings.Join(parts, "; ")), " ")
	if len(line) > maxStatusBytes {
		line = strings.ToValidUTF8(line[:maxStatusBytes-3], "") + "..."
	}
	return line
}

func engineStatus(s engine.State) string {
	text := ""
	switch plan := "plan " + plans.ShortChecksum(s.Checksum); {
	case s.Checksum == "":
		text = "Waiting for the first plan"
	case s.Phase == engine.PhaseApplying:
		text = "Applying " + plan
		if s.Last != nil && s.Last.Number > 1 {
			text += fmt.Sprintf(", attempt %d", s.Last.Number)
		}
		if s.Progress != nil {
			text += ", " + stepText(*s.Progress)
		}
	case s.Phase == engine.PhaseIdle && s.Last != nil && s.Last.Checksum == s.Checksum && !s.Last.Ended.IsZero():
		text = "Applied " + plan
		if !s.Last.Succeeded {
			text = "Failed to apply " + plan
		}
	case s.Phase == engine.PhaseIdle:
		text = "Idle with " + plan
	default:
		text = strings.ToUpper(string(s.Phase[:min(1, len(s.Phase))])) + string(s.Phase[min(1, len(s.Phase)):]) + " with " + plan
		if s.Reason != "" {
			text += ": " + s.Reason
		}
	}
	if s.Unreported {
		text += ", outcome not reported yet"
	}
	switch errorSince := s.SourceErrorSince.UTC().Format(time.RFC3339); {
	case s.SourceError == "":
	case strings.HasPrefix(s.Source, localName+"/"):
		text += "; plan file invalid since " + errorSince
	default:
		text += "; hub unreachable since " + errorSince
	}
	return text
}
