package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/plans"
)

// TestStopProgram stops what an engine has left running. It does nothing where there is nothing to stop.
func TestStopProgram(t *testing.T) {
	for _, name := range []string{HubName, "local/a"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.Name = name
				w.longRunning("slow", time.Minute)
				w.secret.deliver(threeSteps(), 1)
				stop := func(running int) {
					t.Helper()
					if got := w.host.Running(); len(got) != running {
						t.Errorf("%v runs", got)
					}
					if err := StopProgram(w.host, name, w.options.StateDirectory); err != nil {
						t.Error(err)
					}
					if got := w.host.Running(); len(got) > 0 {
						t.Errorf("%v still runs", got)
					}
				}
				stop(0)
				w.start()
				time.Sleep(90 * time.Second)
				w.stop()
				stop(1)
				stop(0)
				time.Sleep(time.Hour)
				w.checkRan("slow one@1")
			})
		})
	}
}

// TestEndOfAnAttemptThatWaits restarts an agent with two plans, while a program of the second runs, in such a way that its attempt
// waits for the first. When the second plan is canceled or removed, its program is stopped, and what the first one has announced stays.
func TestEndOfAnAttemptThatWaits(t *testing.T) {
	for name, end := range map[string]func(*world){
		"canceled": func(w *world) { w.secret.annotate("", "true") },
		"removed":  func(w *world) { w.remove() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, local := newWorld(t), newWorld(t)
				local.host, local.options.Host, local.options.Images = hub.host, hub.host, hub.options.Images
				local.options.Name, local.options.StateDirectory = "local/b", "/agent/state/local/b"
				gate := semaphore.NewWeighted(1)
				for _, w := range []*world{hub, local} {
					w.options.Gate, w.options.InterlockDirectory = gate, "/agent/interlock"
				}
				hub.longRunning("slow", time.Hour)
				local.secret.deliverOld(plans.Plan{Instructions: []plans.Instruction{once("local", "slow", false)}}, 1)
				local.start()
				time.Sleep(10 * time.Second)
				local.stop()
				hub.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("hub", "slow", false)}}, 1)
				hub.start()
				time.Sleep(10 * time.Second)
				local.start()
				time.Sleep(10 * time.Second)
				if running := hub.host.Running(); len(running) != 2 {
					t.Errorf("%v runs", running)
				}
				end(local)
				time.Sleep(10 * time.Second)
				if running := hub.host.Running(); len(running) != 1 || !strings.HasPrefix(running[0], "/agent/state/runs/") {
					t.Errorf("%v runs", running)
				}
				if _, there := hub.host.Files()[activeFile]; !there {
					t.Error("the interlock of the other plan is gone")
				}
				local.stop()
				hub.stop()
			})
		})
	}
}

// TestProgramOfAnAttemptThatCannotGoOn restarts the agent while a program runs in its unit, and keeps the attempt from going on as usual.
// No program runs beside it, and none runs when its plan is reported as failed.
func TestProgramOfAnAttemptThatCannotGoOn(t *testing.T) {
	for name, test := range map[string]struct {
		spoil   func(*world)
		running int32
		state   plans.State
	}{
		"the plan is invalid for this version": {invalidateJournal, 0, plans.StateFailed},
		"the work directory cannot be cleaned": {blockWorkDirectory, 1, plans.StateSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var running, most atomic.Int32
				w.host.Program("slow", func(ctx context.Context, _ run.Command) (run.Result, error) {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					return run.Result{}, retry.Sleep(ctx, time.Minute)
				})
				w.secret.deliver(threeSteps(), 1)
				w.start()
				time.Sleep(90 * time.Second)
				w.stop()
				test.spoil(w)
				w.start()
				time.Sleep(10 * time.Second)
				if running.Load() != test.running {
					t.Errorf("%d programs run after the restart, want %d", running.Load(), test.running)
				}
				time.Sleep(10 * time.Minute)
				w.stop()
				w.checkState(test.state)
				if most.Load() != 1 {
					t.Errorf("%d programs ran at the same time", most.Load())
				}
			})
		})
	}
}

// invalidateJournal replaces the plan in the journal by one that cannot be applied.
func invalidateJournal(w *world) {
	const path = "/agent/state/" + journal.FileName
	line, rest, _ := bytes.Cut(w.host.Files()[path].Content, []byte("\n"))
	var begin map[string]any
	if err := json.Unmarshal(line, &begin); err != nil || begin["plan"] == nil {
		w.t.Fatalf("the first line is %s: %v", line, err)
	}
	begin["plan"] = []byte(`{"files":[{"path":"relative"}]}`)
	line, err := json.Marshal(begin)
	if err == nil {
		err = w.host.WriteFile(path, append(append(line, '\n'), rest...), fs.WithMode(0o600))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// blockWorkDirectory leaves the folder of an older attempt, which cannot be removed.
func blockWorkDirectory(w *world) {
	const folder = "/agent/work/20200101-000000"
	if err := w.host.WriteFile(folder+"/x", nil, fs.WithMode(0o600)); err != nil {
		w.t.Fatal(err)
	}
	w.host.FailWith(func(op, path string) error {
		if op == "remove" && strings.HasPrefix(path, folder) {
			return errors.New("input/output error")
		}
		return nil
	})
}
