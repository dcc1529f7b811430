package local

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

// machine is one in memory with the plan /plans/a.plan.
type machine struct {
	*fake.Host
	t    *testing.T
	plan *Plan
}

func newMachine(t *testing.T, text string) *machine {
	m := &machine{Host: fake.New(), t: t}
	for name, exit := range map[string]int{"ok": 0, "bad": 4} {
		m.Program(name, func(_ context.Context, c run.Command) (run.Result, error) {
			return run.Result{ExitCode: exit, Stdout: []byte(c.Args[0])}, nil
		})
	}
	if err := m.WriteFile("/plans/a.plan", []byte(text), fs.WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
	return m
}

type noImages struct{}

func (noImages) Stage(context.Context, string, string, func(done, total int64)) error { return nil }

// start starts the agent for this plan only.
func (m *machine) start() (stop func()) {
	d := New(Options{Path: "/plans", StateDirectory: "/state/local", Host: m.Host, Log: slog.New(slog.DiscardHandler)})
	m.plan = newPlan(d, "a")
	m.plan.read = func(relative string) ([]byte, error) { return m.ReadFile("/plans/" + relative) }
	m.plan.refresh()
	m.plan.deliver()
	agent := engine.New(engine.Options{Name: "local/a", Source: m.plan, Host: m.Host, Images: noImages{}, Log: d.Log,
		WorkDirectory: "/work", StateDirectory: m.plan.StateDirectory()})
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = agent.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// end is what is left: the files that the plan made, the position without times, and what ran.
func (m *machine) end() []string {
	raw, err := m.ReadFile("/plans/a.pos")
	if err != nil {
		m.t.Error(err)
	}
	_, status, err := decodePosition(raw)
	if err != nil {
		m.t.Error(err)
	}
	status.LastApplyTime = time.Time{}
	end := []string{fmt.Sprintf("%+v", status)}
	for _, c := range m.Runs() {
		end = append(end, strings.Join(c.Args, " "))
	}
	for path, file := range m.Files() {
		if strings.HasPrefix(path, "/etc/") {
			end = append(end, fmt.Sprintf("%s %s %+v", path, file.Content, file.Attrs))
		}
	}
	slices.Sort(end[len(m.Runs())+1:])
	return end
}

// TestCrashes stops the world before and after each durable effect of a local plan, and in the middle of each program. The end must be that
// of the plan that nothing has interrupted, and a plan that was applied is not applied again by any number of starts.
func TestCrashes(t *testing.T) {
	const files = `"files":[{"path":"/etc/a","content":"QQ=="},{"path":"/etc/b","content":"Qg==","permissions":"4755"}],`
	points := 0
	for name, text := range map[string]string{
		"success": `{` + files + `"instructions":[{"name":"one","command":"ok","args":["1"],"saveOutput":true},{"name":"two","command":"ok",` +
			`"args":["2"]}]}`,
		"failure": `{` + files + `"instructions":[{"name":"one","command":"ok","args":["1"],"saveOutput":true},{"name":"two","command":"bad",` +
			`"args":["2"]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			want, _ := crash(t, text, func(*machine, func()) {})
			try := func(what string, arm func(m *machine, n int, onStop func())) {
				for n := 1; !t.Failed(); n++ {
					got, stopped := crash(t, text, func(m *machine, onStop func()) { arm(m, n, onStop) })
					if !stopped {
						return
					}
					points++
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("stopped %s %d, the end differs:\n%s", what, n, diff)
					}
				}
			}
			try("before effect", func(m *machine, n int, onStop func()) { m.StopAt(n, false, onStop) })
			try("after effect", func(m *machine, n int, onStop func()) { m.StopAt(n, true, onStop) })
			try("in run", func(m *machine, n int, onStop func()) {
				count := 0
				m.StopAt(1<<40, false, onStop)
				m.OnRun(func(run.Command) {
					if count++; count == n {
						m.PowerOff()
					}
				})
			})
		})
	}
	t.Logf("crash matrix of local plans: %d points", points)
}

// crash applies a plan until its outcome is reported, and stops the world where arm says.
func crash(t *testing.T, text string, arm func(m *machine, onStop func())) (end []string, stopped bool) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, text)
		off := make(chan struct{})
		arm(m, func() { close(off) })
		stop := m.start()
		stopped = m.reported(off)
		m.OnRun(nil)
		stop() // before the restart: a process writes nothing after the power is cut
		m.Restart()
		stop = m.start()
		m.reported(nil)
		stop()
		if m.plan.status.AppliedChecksum != "" {
			stop = m.start()
			time.Sleep(time.Hour)
			synctest.Wait()
			stop()
		}
		end = m.end()
	})
	return end, stopped
}

// reported waits until the position tells of the outcome; it returns true when the world stops before that.
func (m *machine) reported(off chan struct{}) bool {
	for range 1000 {
		synctest.Wait()
		select {
		case <-off:
			return true
		default:
		}
		if status := m.plan.status; status.AppliedChecksum != "" || status.FailedChecksum != "" {
			return false
		}
		time.Sleep(100 * time.Millisecond)
	}
	m.t.Error("no outcome is reported")
	return false
}

// TestMovedFromTheOldAgent shows that a plan which the agent before has applied is not applied again, though no journal knows of it.
func TestMovedFromTheOldAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := `{"instructions":[{"name":"one","command":"ok","args":["1"]}]}`
		m := newMachine(t, text)
		position := `{"appliedChecksum":"` + plans.Checksum([]byte(text)) + `"}`
		if err := m.WriteFile("/plans/a.pos", []byte(position), fs.WithMode(0o600)); err != nil {
			t.Fatal(err)
		}
		stop := m.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		if runs := m.Runs(); len(runs) != 0 {
			t.Errorf("ran %v", runs)
		}
		if raw, err := m.ReadFile("/plans/a.pos"); err != nil || string(raw) != position {
			t.Errorf("the position became %s: %v", raw, err)
		}
	})
}

// TestBackToThePreviousPlan changes a plan to one that fails, and back: what that one has done to the machine is no longer what the first
// one made, so the first one is applied again, once.
func TestBackToThePreviousPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := `{"instructions":[{"name":"one","command":"ok","args":["good"]}]}`
		m := newMachine(t, good)
		stop := m.start()
		for _, text := range []string{good, `{"instructions":[{"name":"one","command":"bad","args":["bad"]}]}`, good} {
			if err := m.WriteFile("/plans/a.plan", []byte(text), fs.WithMode(0o600)); err != nil {
				t.Fatal(err)
			}
			m.plan.refresh()
			m.plan.deliver()
			time.Sleep(10 * time.Second)
		}
		stop()
		stop = m.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		var ran []string
		for _, c := range m.Runs() {
			ran = append(ran, c.Args[0])
		}
		if diff := cmp.Diff([]string{"good", "bad", "good"}, ran); diff != "" {
			t.Error(diff)
		}
	})
}
