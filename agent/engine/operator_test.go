package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

func TestRetry(t *testing.T) {
	for name, test := range map[string]struct {
		old  bool
		max  int
		wait time.Duration
		ran  []string
	}{
		"the hub was told that it failed": {max: 1, wait: time.Hour, ran: []string{"bad only@1", "bad only@2"}},
		"it would be retried later":       {max: 3, wait: 2 * time.Second, ran: []string{"bad only@1", "bad only@2"}},
		"without plan-state":              {old: true, max: 1, wait: time.Hour, ran: []string{"bad only@1", "bad only@2"}},
		"without plan-state, soon":        {old: true, max: 9, wait: 2 * time.Second, ran: []string{"bad only@1", "bad only@2"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				plan := plans.Plan{Instructions: []plans.Instruction{once("only", "bad", false)}}
				if test.old {
					w.secret.deliverOld(plan, test.max)
				} else {
					w.secret.deliver(plan, test.max)
				}
				w.start()
				time.Sleep(test.wait)
				w.program("bad", 0)
				if err := w.engine.Retry(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				w.checkRan(test.ran...)
				w.waitAMinute()
				got := w.secret.status()
				if got.FailureCount != 0 || got.AppliedChecksum == "" || !test.old && got.State != plans.StateSucceeded {
					t.Errorf("got %+v", got)
				}
				if err := w.engine.Retry(); !errors.Is(err, errNothingToRetry) {
					t.Errorf("a plan that has succeeded is retried: %v", err)
				}
				w.stop()
				if err := w.engine.Retry(); !errors.Is(err, errNotRunning) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// TestRetryThatFails is reported like any failure, with a revision of its own.
func TestRetryThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "bad", false)}}, 1)
		w.start()
		w.waitAMinute()
		if err := w.engine.Retry(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		w.stop()
		if got := w.secret.status(); got.State != plans.StateFailed || got.Revision != 2 || got.FailureCount != 2 || len(w.ran()) != 2 {
			t.Errorf("ran %v, got %+v", w.ran(), got)
		}
	})
}

func TestVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var trusted atomic.Bool
		trusted.Store(true)
		w.options.Verify = func(s source.Snapshot) error {
			if !trusted.Load() {
				return errors.New("nobody has signed it")
			}
			return nil
		}
		runs := w.times("p", func(int) int { return 0 })
		w.secret.deliver(plans.Plan{PeriodicInstructions: []plans.PeriodicInstruction{periodic("p", "p", 60)}}, 1)
		w.start()
		time.Sleep(90 * time.Second)
		trusted.Store(false)
		_, before := w.secret.counts()
		evil := plans.Plan{Instructions: []plans.Instruction{once("evil", "ok", false)},
			PeriodicInstructions: []plans.PeriodicInstruction{{CommonInstruction: plans.CommonInstruction{Name: "evil", Command: "ok"}}}}
		w.secret.deliver(evil, 1)
		time.Sleep(10 * time.Minute)
		w.stop()
		w.start()
		time.Sleep(10 * time.Minute)
		_, after := w.secret.counts()
		if ran := strings.Join(w.ran(), " "); strings.Contains(ran, "evil") || after != before {
			t.Errorf("%d writes, ran %v", after-before, ran)
		}
		if state := w.engine.State(); state.Phase != PhaseRefusing || state.Reason != "nobody has signed it" {
			t.Errorf("it says %s, %s", state.Phase, state.Reason)
		}
		if len(*runs) == 0 {
			t.Error("the plan before it was not applied")
		}
		trusted.Store(true)
		w.secret.hub(func(plans.SecretData) {})
		w.waitAMinute()
		w.stop()
		w.checkState(plans.StateSucceeded)
	})
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.host.Program("talk", func(ctx context.Context, c run.Command) (run.Result, error) {
			for i := range 100 {
				time.Sleep(time.Second)
				c.Progress(int64(i))
			}
			return run.Result{}, nil
		})
		checksum := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("quick", "ok", false), once("long", "talk", false)}}, 1)
		w.start()
		synctest.Wait()
		_, before := w.secret.counts()
		time.Sleep(4 * time.Second)
		if got := w.secret.status(); got.Progress != nil {
			t.Errorf("it tells of what is short: %+v", got.Progress)
		}
		time.Sleep(3 * time.Second)
		got := w.secret.status().Progress
		want := plans.Progress{Checksum: checksum, Attempt: 1, Phase: plans.PhaseRunning, Index: 1, Total: 2, Name: "long"}
		if got == nil || got.OutputBytes == 0 || got.Since.IsZero() {
			t.Fatalf("got %+v", got)
		}
		got.OutputBytes, got.Since = 0, time.Time{}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Error(diff)
		}
		if state := w.engine.State(); state.Progress == nil || state.Progress.Name != "long" || state.Phase != PhaseApplying {
			t.Errorf("it says %+v", state)
		}
		time.Sleep(83 * time.Second)
		synctest.Wait()
		if _, after := w.secret.counts(); after-before < 4 || after-before > 7 {
			t.Errorf("%d writes in 90 s", after-before)
		}
		w.waitAMinute()
		w.stop()
		if got := w.secret.status(); got.State != plans.StateSucceeded || got.Progress != nil {
			t.Errorf("got %+v", got)
		}
	})
}

// TestProgressDelaysNothing has a hub that takes no progress: the outcome comes at once all the same.
func TestProgressDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.longRunning("slow", 61*time.Second)
		source := &deaf{secret: w.secret}
		w.options.Source = source
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("long", "slow", false)}}, 1)
		w.start()
		time.Sleep(61*time.Second + 50*time.Millisecond)
		synctest.Wait()
		w.stop()
		if got := w.secret.status(); got.State != plans.StateSucceeded || source.tried == 0 {
			t.Errorf("tried %d times, got %+v", source.tried, got)
		}
	})
}

// deaf is a source that hangs when it is told of progress.
type deaf struct {
	*secret
	tried int
}

func (d *deaf) Update(ctx context.Context, uid, checksum string, change func(*plans.Status)) (source.Snapshot, error) {
	status := d.status()
	if change(&status); status.Progress != nil {
		d.tried++
		<-ctx.Done()
		return source.Snapshot{}, ctx.Err()
	}
	return d.secret.Update(ctx, uid, checksum, change)
}

func TestHistoryOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("first", "ok", false), once("secret", "bad", false)}}, 2)
		w.start()
		w.waitAMinute()
		got, err := w.engine.History()
		if err != nil || len(got) != 2 {
			t.Fatalf("got %+v, %v", got, err)
		}
		last := got[1]
		if last.Source != "hub" || last.Number != 2 || last.Try != 2 || last.Succeeded ||
			last.Message != "instructions[1] (secret): exit code 3" ||
			len(last.Instructions) != 2 || last.Instructions[1].ExitCode != 3 || last.Instructions[1].Ended.IsZero() ||
			last.Instructions[0].RunDir != "/agent/state/runs/"+plans.ShortChecksum(last.Checksum)+"-2-0" {
			t.Errorf("got %+v", last)
		}
		file := w.host.Files()["/agent/state/history.jsonl"]
		if file.Attrs.Mode != 0o600 || strings.Contains(string(file.Content), "from bad") {
			t.Errorf("the file is %o: %s", file.Attrs.Mode, file.Content)
		}
		counters := w.engine.State().Counters
		if counters.AttemptsFailed != 2 || counters.InstructionsRun != 4 || counters.ReportsSent == 0 {
			t.Errorf("counted %+v", counters)
		}
		w.stop()
	})
}

func TestHistoryIsShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		last := ""
		for i := range 2*journal.MaxAttempts + 10 {
			last = w.secret.deliver(plans.Plan{Files: []plans.File{file("/etc/a", fmt.Sprint(i))}}, 1)
			time.Sleep(time.Second)
		}
		got, err := w.engine.History()
		if err != nil || len(got) != journal.MaxAttempts || got[journal.MaxAttempts-1].Checksum != last {
			t.Errorf("%d attempts, %v", len(got), err)
		}
		w.stop()
		if lines := strings.Count(string(w.host.Files()["/agent/state/history.jsonl"].Content), "\n"); lines > journal.MaxAttempts+20 {
			t.Errorf("%d lines", lines)
		}
		if file := w.host.Files()["/agent/state/journal"]; len(file.Content) > journal.CompactBytes+1<<16 {
			t.Errorf("the journal has %d bytes", len(file.Content))
		}
	})
}

// TestSharedGate has two engines on one machine: one applies at a time, and neither touches what is the other's. B16: what both apply is
// kept once each, however often they are asked.
func TestSharedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, local := newWorld(t), newWorld(t)
		local.host, local.options.Host, local.options.Images = hub.host, hub.host, hub.options.Images
		gate := semaphore.NewWeighted(1)
		hub.options.Gate, local.options.Gate = gate, gate
		local.options.Name, local.options.StateDirectory = "a/b.plan", "/agent/state/local/b"
		hub.options.AppliedPlanDirectory, local.options.AppliedPlanDirectory = "/agent/applied", "/agent/applied"
		running, most := 0, 0
		hub.host.Program("count", func(ctx context.Context, c run.Command) (run.Result, error) {
			running++
			most = max(most, running)
			time.Sleep(10 * time.Second)
			running--
			if info, err := hub.host.Lstat(c.Dir); err != nil || !info.Dir {
				t.Error("another plan has removed its folder")
			}
			return run.Result{}, nil
		})
		same := plans.Plan{Instructions: []plans.Instruction{once("same", "count", false), once("same", "count", false)}}
		hub.secret.deliver(same, 1)
		local.secret.deliverOld(same, 1)
		hub.start()
		local.start()
		time.Sleep(15 * time.Second)
		waits := 0
		for _, w := range []*world{hub, local} {
			if w.engine.State().Reason == "waiting for another plan to be applied" {
				waits++
			}
		}
		if waits != 1 {
			t.Errorf("%d of them wait", waits)
		}
		time.Sleep(10 * time.Minute)
		hub.stop()
		local.stop()
		if most != 1 || len(hub.ran()) != 4 {
			t.Errorf("%d at a time, ran %v", most, hub.ran())
		}
		if got := hub.secret.status(); got.State != plans.StateSucceeded {
			t.Errorf("the hub got %+v", got)
		}
		if got := local.secret.status(); got.SuccessCount != 1 {
			t.Errorf("the file got %+v", got)
		}
		names, _ := hub.host.ReadDir("/agent/applied")
		if len(names) != 1 {
			t.Errorf("kept %v", names)
		}
		units := map[string]bool{}
		for _, c := range hub.host.Runs() {
			units[c.Unit] = true
		}
		if len(units) != 4 {
			t.Errorf("two runs had the same unit: %v", units)
		}
	})
}

func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.host.Program("hang", func(ctx context.Context, _ run.Command) (run.Result, error) {
			time.Sleep(3 * time.Hour) // also when it is told to end
			return run.Result{ExitCode: -1, TimedOut: true}, nil
		})
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "hang", false)}}, 1)
		w.start()
		began := time.Now()
		for _, look := range []struct {
			after time.Duration
			alive bool
		}{{30 * time.Minute, true}, {time.Hour, true}, {time.Hour + 9*time.Minute, true}, {time.Hour + 11*time.Minute, false}, {4 * time.Hour,
			true}} {
			time.Sleep(time.Until(began.Add(look.after)))
			synctest.Wait()
			if alive := w.engine.Alive(time.Now()); alive != look.alive {
				t.Errorf("after %s: alive is %t", look.after, alive)
			}
		}
		w.stop()
	})
}

// TestAtRestNothingIsWritten shows that B19 cannot happen: with a plan applied and its probes running, a day passes without one write to
// the disk or to the hub.
func TestAtRestNothingIsWritten(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(protocolOf(old), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				newHealth(w)
				w.options.InterlockDirectory, w.options.AppliedPlanDirectory = "/agent/interlock", "/agent/applied"
				deliver := w.secret.deliver
				if old {
					deliver = w.secret.deliverOld
				}
				deliver(plans.Plan{Files: []plans.File{file("/etc/a", "A")}, Instructions: []plans.Instruction{once("one", "ok", true)},
					Probes: probes(0, "p")}, 1)
				w.start()
				w.waitAMinute()
				var effects []string
				w.host.FailWith(func(op, path string) error {
					effects = append(effects, op+" "+path)
					return nil
				})
				gets, writes := w.secret.counts()
				time.Sleep(24 * time.Hour)
				w.stop()
				if g, wr := w.secret.counts(); len(effects) > 0 || g != gets || wr != writes {
					t.Errorf("%d reads, %d writes, and on the disk %v", g-gets, wr-writes, effects)
				}
			})
		})
	}
}

// TestOutputsOfPreviousPlansAreRemoved shows the other half of B15: names that a plan does not have any more are not reported.
func TestOutputsOfPreviousPlansAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		for _, name := range []string{"a", "b", "c"} {
			w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once(name, "ok", true)}}, 1)
			w.waitAMinute()
		}
		w.stop()
		if diff := cmp.Diff(map[string][]byte{"c": []byte("ok 1")}, w.secret.status().AppliedOutput); diff != "" {
			t.Error(diff)
		}
	})
}
