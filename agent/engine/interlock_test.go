package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

const pendingFile, activeFile = "/agent/interlock/restart-pending", "/agent/interlock/applyinator-active"

// lateScript is a machine on which an install script announces a restart at the moment at which the agent announces a plan, and saw none
// before.
type lateScript struct {
	*fake.Host
	announced bool
}

func (h *lateScript) WriteFile(path string, content []byte, attrs fs.Attributes) error {
	err := h.Host.WriteFile(path, content, attrs)
	if path == activeFile && !h.announced {
		h.announced = true
		return h.Host.WriteFile(pendingFile, []byte(plans.FormatTime(time.Now().UTC())), fs.WithMode(0o600))
	}
	return err
}

// TestInterlockAtTheSameMoment shows that agent and script do not both go on.
func TestInterlockAtTheSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.InterlockDirectory, w.options.Host = "/agent/interlock", &lateScript{Host: w.host}
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "ok", false)}}, 1)
		w.start()
		w.waitAMinute()
		if _, there := w.host.Files()[activeFile]; there || len(w.ran()) > 0 {
			t.Errorf("the plan is applied while a restart is announced: %v", w.ran())
		}
		if err := w.host.Remove(pendingFile); err != nil {
			t.Fatal(err)
		}
		w.waitAMinute()
		w.stop()
		if len(w.ran()) != 1 {
			t.Errorf("after the restart it ran %v", w.ran())
		}
	})
}

// TestInterlockOfNobody shows how long an announcement holds a plan up behind which no script stands any more.
func TestInterlockOfNobody(t *testing.T) {
	const boot, stat = "0e3b1c1e-0000-4000-8000-000000000001", "77 (sh) x) S 1 77 77 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n"
	now := func() string { return plans.FormatTime(time.Now().UTC()) + "\n" }
	tests := map[string]struct {
		content func() string
		age     time.Duration
		waits   time.Duration
	}{
		"touched just now":         {content: func() string { return "" }, waits: pendingExpires},
		"touched four minutes ago": {content: func() string { return "" }, age: 4 * time.Minute, waits: time.Minute},
		"touched long ago":         {content: func() string { return "" }, age: time.Hour},
		"nonsense of long ago":     {content: func() string { return "soon" }, age: time.Hour},
		"of a script that runs": {content: func() string { return now() + "pid=77 start=4711 boot=" + boot + "\n" },
			waits: pendingExpires},
		"of a script that was killed":   {content: func() string { return now() + "pid=78 start=4711 boot=" + boot + "\n" }},
		"of another process by its pid": {content: func() string { return now() + "pid=77 start=4712 boot=" + boot + "\n" }},
		"from before the machine started": {content: func() string {
			return now() +
				"pid=77 start=4711 boot=0e3b1c1e-0000-4000-8000-000000000002\n"
		}},
		"of who says half of who he is": {content: func() string { return now() + "pid=78\n" }, waits: pendingExpires},
		"of who says nonsense": {content: func() string { return now() + "pid=../../tmp/x start=1 boot=" + boot + "\n" },
			waits: pendingExpires},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.InterlockDirectory = "/agent/interlock"
				for path, content := range map[string]string{pendingFile: test.content(), bootIDFile: boot + "\n", "/proc/77/stat": stat} {
					if err := w.host.WriteFile(path, []byte(content), fs.WithMode(0o600)); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(test.age)
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "ok", false)}}, 1)
				w.start()
				if test.waits > 0 {
					time.Sleep(test.waits - 10*time.Second)
					if ran := w.ran(); len(ran) > 0 {
						t.Errorf("it does not wait: %v", ran)
					}
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				w.stop()
				if ran := fmt.Sprint(w.ran()); ran != "[ok only@1]" {
					t.Errorf("ran %s", ran)
				}
				if _, there := w.host.Files()[pendingFile]; there {
					t.Error("the announcement is still there")
				}
			})
		})
	}
}

func TestInterlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.InterlockDirectory = "/agent/interlock"
		const pending, active = "/agent/interlock/restart-pending", "/agent/interlock/applyinator-active"
		for _, path := range []string{pending, active} {
			if err := w.host.WriteFile(path, nil, fs.WithMode(0o600)); err != nil {
				t.Fatal(err)
			}
		}
		w.host.Program("look", func(context.Context, run.Command) (run.Result, error) {
			if _, there := w.host.Files()[active]; !there {
				t.Error("not announced while it runs")
			}
			return run.Result{}, nil
		})
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "look", false)}}, 1)
		w.start()
		w.waitAMinute()
		if _, there := w.host.Files()[active]; there || len(w.ran()) != 0 {
			t.Error("it does not wait for the restart")
		}
		time.Sleep(5 * time.Minute)
		if len(w.ran()) != 1 {
			t.Error("it waits for ever")
		}
		w.stop()
		for _, path := range []string{pending, active} {
			if _, there := w.host.Files()[path]; there {
				t.Errorf("%s is left", path)
			}
		}
	})
}
