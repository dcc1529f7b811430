package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/plans"
	"github.com/google/go-cmp/cmp"
)

// TestRestartAtEveryStep stops the world at each durable effect, before and after it, and starts it again. Whatever the moment, the plan
// ends as it would have, every instruction sees the same attempt, and only the one that was running may run twice.
func TestRestartAtEveryStep(t *testing.T) {
	plan := plans.Plan{
		Files: []plans.File{file("/etc/a", "A"), file("/etc/b", "B")},
		Instructions: []plans.Instruction{
			{CommonInstruction: plans.CommonInstruction{Name: "one", Image: "image:1", Args: []string{"one"}, Command: "ok"}, SaveOutput: true},
			once("two", "ok", true),
			once("three", "ok", true),
		},
	}
	for _, protocol := range []string{"state", "checksum"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after=%t", protocol, after), func(t *testing.T) {
				for step, whole := 1, false; !whole; step++ {
					synctest.Test(t, func(t *testing.T) { whole = crashAt(t, plan, protocol, step, after) })
					if t.Failed() {
						t.Fatalf("failed when stopped at effect %d", step)
					}
					if step > 200 {
						t.Fatal("it never comes to its end")
					}
				}
			})
		}
	}
}

// crashAt reports whether the plan was over before that effect.
func crashAt(t *testing.T, plan plans.Plan, protocol string, step int, after bool) bool {
	w := newWorld(t)
	checksum := ""
	if protocol == "state" {
		checksum = w.secret.deliver(plan, 3)
	} else {
		checksum = w.secret.deliverOld(plan, 3)
	}
	stopped := w.crash(step, after)
	w.start()
	w.waitAMinute()
	w.stop()

	got := w.secret.status()
	want := map[string][]byte{"one": []byte("ok 1"), "two": []byte("ok 1"), "three": []byte("ok 1")}
	if diff := cmp.Diff(want, got.AppliedOutput); diff != "" {
		t.Error(diff)
	}
	if got.AppliedChecksum != checksum || got.SuccessCount != 1 || got.FailureCount != 0 || got.FailedOutput != nil {
		t.Errorf("got %+v", got)
	}
	runs := w.ran()
	if unique := slices.Compact(slices.Clone(runs)); !slices.Equal(unique, []string{"ok one@1", "ok two@1", "ok three@1"}) || len(runs) > 4 {
		t.Errorf("ran %v", runs)
	}
	files := w.host.Files()
	if string(files["/etc/a"].Content) != "A" || string(files["/etc/b"].Content) != "B" {
		t.Errorf("files are %v", slices.Collect(maps.Keys(files)))
	}
	return !stopped
}

// TestFailingEffects lets each kind of effect fail once; the plan is applied all the same, and the failure is seen.
func TestFailingEffects(t *testing.T) {
	for _, operation := range []string{"write", "append", "mkdir", "remove", "unpack", "sync"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.start()
				synctest.Wait()
				failed := false
				w.host.FailWith(func(op, path string) error {
					if op == operation && !failed {
						failed = true
						return fmt.Errorf("%s %s: no space left on device", op, path)
					}
					return nil
				})
				checksum := w.secret.deliver(plans.Plan{
					Files: []plans.File{file("/etc/a", "A")},
					Instructions: []plans.Instruction{once("one", "ok", true),
						{CommonInstruction: plans.CommonInstruction{Name: "two", Image: "image:1", Command: "ok"}}},
				}, 3)
				w.waitAMinute()
				w.stop()
				if got := w.secret.status(); got.State != plans.StateSucceeded || got.AppliedChecksum != checksum || !failed {
					t.Errorf("got %+v; an effect failed: %t", got, failed)
				}
			})
		})
	}
}

func TestFullDiskIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		synctest.Wait()
		w.host.FailWith(func(op, path string) error { return fmt.Errorf("%s %s: no space left on device", op, path) })
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", true)}}, 1)
		w.waitAMinute()
		w.stop()
		got := w.secret.status()
		const want = "writing journal: append /agent/state/journal: no space left on device"
		if got.State != plans.StateFailed || string(got.FailedOutput[report.ErrorOutput]) != want {
			t.Errorf("got %s %q", got.State, got.FailedOutput)
		}
	})
}

func TestDamagedJournal(t *testing.T) {
	plan := plans.Plan{Instructions: []plans.Instruction{once("one", "ok", true)}}
	for name, damage := range map[string]func([]byte) []byte{
		"half a line": func(raw []byte) []byte { return raw[:len(raw)-5] },
		"garbage":     func(raw []byte) []byte { return append([]byte("\x00\x00\n"), raw...) },
		"empty":       func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.secret.deliver(plan, 1)
				w.start()
				w.waitAMinute()
				w.stop()
				const path = "/agent/state/journal"
				if err := w.host.WriteFile(path, damage(w.host.Files()[path].Content), fs.WithMode(0o600)); err != nil {
					t.Fatal(err)
				}
				w.start()
				w.waitAMinute()
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("two", "ok", true)}}, 1)
				w.waitAMinute()
				w.stop()
				if got := w.secret.status(); got.State != plans.StateSucceeded || string(got.AppliedOutput["two"]) != "ok 1" {
					t.Errorf("got %+v", got)
				}
				raw := w.host.Files()[path].Content
				if r, err := journal.Read(raw); err != nil || !r.Succeeded {
					t.Errorf("the journal is %s: %v", raw, err)
				}
			})
		})
	}
}

// TestAgentStopsInTheMiddleOfAnInstruction shows that what runs in a unit of its own goes on while no agent is there, and is not run
// again; only a machine that goes down takes it along.
func TestAgentStopsInTheMiddleOfAnInstruction(t *testing.T) {
	for name, test := range map[string]struct {
		reboot bool
		away   time.Duration
		began  int
	}{
		"it still runs when the agent is back":    {away: time.Minute, began: 1},
		"it has ended when the agent is back":     {away: time.Hour, began: 1},
		"the machine went down, so it runs again": {reboot: true, away: time.Minute, began: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				began := 0
				w.host.Program("long", func(ctx context.Context, c run.Command) (run.Result, error) {
					began++
					if retry.Sleep(ctx, 10*time.Minute) != nil {
						return run.Result{ExitCode: -1}, ctx.Err()
					}
					return run.Result{Stdout: []byte("long " + env(c, envAttempt))}, nil
				})
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("first", "ok", false), once("only", "long", true)}}, 1)
				w.start()
				w.waitAMinute()
				w.stop()
				if test.reboot {
					w.host.PowerOff()
					w.host.Restart()
				}
				time.Sleep(test.away)
				if got := w.secret.status(); got.State != plans.StateInProgress || got.FailureCount != 0 {
					t.Errorf("got %+v", got)
				}
				w.start()
				time.Sleep(20 * time.Minute)
				w.stop()
				got := w.secret.status()
				if got.State != plans.StateSucceeded || string(got.AppliedOutput["only"]) != "long 1" || began != test.began {
					t.Errorf("began %d times, got %+v", began, got)
				}
				w.checkRan("ok first@1", "long only@1")
			})
		})
	}
}

// TestProgramThatRemovesItsFolder restarts the agent after a program has removed the folder in which it runs. It is not started twice.
func TestProgramThatRemovesItsFolder(t *testing.T) {
	for name, away := range map[string]time.Duration{"it still runs": time.Minute, "it has ended": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				began := 0
				w.host.Program("clean", func(ctx context.Context, c run.Command) (run.Result, error) {
					began++
					if err := w.host.RemoveAll(c.Dir); err != nil {
						t.Error(err)
					}
					if retry.Sleep(ctx, 10*time.Minute) != nil {
						return run.Result{ExitCode: -1}, ctx.Err()
					}
					return run.Result{Stdout: []byte("clean " + env(c, envAttempt))}, nil
				})
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "clean", true)}}, 1)
				w.start()
				w.waitAMinute()
				w.stop()
				time.Sleep(away)
				w.start()
				time.Sleep(20 * time.Minute)
				w.stop()
				got := w.secret.status()
				if got.State != plans.StateSucceeded || string(got.AppliedOutput["only"]) != "clean 1" || began != 1 {
					t.Errorf("began %d times, got %+v", began, got)
				}
			})
		})
	}
}

// crash starts an engine and stops the world before or after an effect. It reports whether there was one, with the machine running again.
func (w *world) crash(step int, after bool) bool {
	ended := make(chan struct{})
	w.host.StopAt(step, after, func() { close(ended) })
	w.start()
	select {
	case <-ended:
	case <-time.After(time.Minute):
	}
	w.stop()
	stopped := w.host.Stopped()
	w.host.Restart()
	return stopped
}
