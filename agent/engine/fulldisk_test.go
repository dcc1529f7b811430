package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// TestFullDiskAtTheEnd fills the disk while the instruction of a plan runs, so that its end cannot be journaled, and cuts the hub off, so
// that it is not reported either. Neither a restart at once, nor one when there is room again, runs the plan again.
func TestFullDiskAtTheEnd(t *testing.T) {
	for name, room := range map[string]bool{"the disk stays full until the restart": false, "there is room again before": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.host.Program("fill", func(context.Context, run.Command) (run.Result, error) {
					w.secret.setDown(errors.New("down"))
					w.host.FailWith(func(_, path string) error {
						return map[bool]error{true: syscall.ENOSPC}[strings.HasSuffix(path, "/"+journal.FileName)]
					})
					return run.Result{}, nil
				})
				checksum := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("a", "fill", false)}}, 3)
				w.start()
				w.waitAMinute()
				if room {
					w.host.FailWith(nil)
					time.Sleep(2 * journalRetry)
					raw, err := w.host.ReadFile("/agent/state/" + journal.FileName)
					if err != nil {
						t.Fatal(err)
					}
					if r, err := journal.Read(raw); err != nil || r.Unfinished() || !r.Succeeded {
						t.Errorf("there is room, and the journal has %+v, %v", r, err)
					}
				}
				w.stop()
				w.host.FailWith(nil)
				w.secret.setDown(nil)
				w.start()
				w.waitAMinute()
				w.stop()
				w.checkRan("fill a@1")
				if got := w.secret.status(); got.State != plans.StateSucceeded || got.AppliedChecksum != checksum {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

// TestRemainsOfAFullDisk: what is kept because the end of an attempt could not be journaled is removed when it can: within a minute, or
// before another plan is applied.
func TestRemainsOfAFullDisk(t *testing.T) {
	for name, next := range map[string]bool{"no other plan": false, "another plan": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.before()
				w.host.Program("fill", func(context.Context, run.Command) (run.Result, error) {
					w.host.FailWith(func(_, path string) error {
						return map[bool]error{true: syscall.ENOSPC}[strings.HasSuffix(path, "/"+journal.FileName)]
					})
					return run.Result{}, nil
				})
				w.secret.deliver(plans.Plan{Files: []plans.File{file("/etc/a", "new a")},
					Instructions: []plans.Instruction{once("a", "fill", false)}}, 3)
				w.start()
				w.waitAMinute()
				if len(w.kept()) == 0 {
					t.Fatal("the backup is not kept though a restart would go on with the attempt")
				}
				w.host.FailWith(nil)
				if next {
					w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("b", "ok", false)}}, 3)
					time.Sleep(time.Second)
				} else {
					time.Sleep(2 * journalRetry)
				}
				synctest.Wait()
				if kept := w.kept(); len(kept) > 0 {
					t.Errorf("the journal is written, and there is still %v", kept)
				}
				if names, err := w.host.ReadDir("/agent/work"); err != nil || len(names) > 0 {
					t.Errorf("the work directory has %v, %v", names, err)
				}
				w.stop()
			})
		})
	}
}

// TestFailedAttemptHasFilledTheDisk: what a failed attempt has left in the work directory, for people, fills the disk. It is removed when
// the journal cannot be written for the next attempt, or that the plan was accepted cannot be stored, and the plan is applied.
func TestFailedAttemptHasFilledTheDisk(t *testing.T) {
	for name, test := range map[string]struct {
		verify bool
		want   string
	}{"journal": {false, "fill a@3"}, "accepted plan": {true, "fill a@2"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var full, ran atomic.Bool
				w.host.Program("fill", func(context.Context, run.Command) (run.Result, error) {
					if ran.Swap(true) {
						return run.Result{}, nil
					}
					full.Store(true)
					return run.Result{ExitCode: 1}, nil
				})
				w.host.FailWith(func(operation, path string) error {
					if operation == "remove" && filepath.Dir(path) == w.options.WorkDirectory {
						full.Store(false)
					}
					return map[bool]error{true: syscall.ENOSPC}[full.Load() && strings.HasSuffix(path, "/"+journal.FileName)]
				})
				if test.verify {
					w.options.Verify = func(source.Snapshot) error {
						return map[bool]error{true: fmt.Errorf("%w: %w", source.ErrNotStored, syscall.ENOSPC)}[full.Load()]
					}
				}
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("a", "fill", false)}}, 3)
				w.start()
				w.waitAMinute()
				w.waitAMinute()
				w.stop()
				w.checkRan("fill a@1", test.want)
				w.checkState(plans.StateSucceeded)
			})
		})
	}
}

// TestFullDiskAndSignature: a valid plan is not executed while the machine cannot store that it has accepted it. The hub reads why, no try
// is used up however long it takes, and the plan is applied when there is room.
func TestFullDiskAndSignature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var full atomic.Bool
		w.options.Verify = func(source.Snapshot) error {
			if full.Load() {
				return fmt.Errorf("%w: %w", source.ErrNotStored, syscall.ENOSPC)
			}
			return nil
		}
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("before", "bad", false)}}, 2)
		w.start()
		w.waitAMinute()
		w.checkState(plans.StateFailed)

		full.Store(true)
		checksum := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", false)}}, 1)
		w.waitAMinute()
		_, before := w.secret.counts()
		time.Sleep(24 * time.Hour)
		w.stop()
		w.start()
		w.waitAMinute()
		const want = "storing that the plan was accepted failed: no space left on device"
		got := w.secret.status()
		if got.State != plans.StateInProgress || got.FailureCount != 1 || got.FailedChecksum != "" ||
			string(got.FailedOutput[report.ErrorOutput]) != want || len(got.FailedOutput) != 1 {
			t.Errorf("the hub reads %+v", got)
		}
		if _, after := w.secret.counts(); after != before {
			t.Errorf("%d more writes in a day", after-before)
		}
		w.checkRan("bad before@1", "bad before@2")

		full.Store(false)
		w.waitAMinute()
		w.stop()
		w.checkRan("bad before@1", "bad before@2", "ok one@2")
		if got := w.secret.status(); got.State != plans.StateSucceeded || got.AppliedChecksum != checksum || got.FailureCount != 0 {
			t.Errorf("there is room, and the hub reads %+v", got)
		}
	})
}

// TestNotStoredForChangingReasons: where a read-only disk has a temporary file that cannot be removed, the error names another file each
// time. Reports do not follow each other without end.
func TestNotStoredForChangingReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var refusals atomic.Int64
		w.options.Verify = func(source.Snapshot) error {
			n := refusals.Add(1)
			if n > 200 {
				return nil // ends a loop, whose plan runs then
			}
			return fmt.Errorf("%w: open .accepted%d.tmp: %w", source.ErrNotStored, n, syscall.EROFS)
		}
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", false)}}, 1)
		w.start()
		time.Sleep(time.Hour)
		w.stop()
		w.checkRan()
		// More than one if the engine hears that a report was written before it gets the update.
		if _, writes := w.secret.counts(); writes == 0 || writes > 20 {
			t.Errorf("%d writes", writes)
		}
		if got := w.secret.status(); got.State != plans.StateInProgress || got.FailureCount != 1 {
			t.Errorf("the hub reads %+v", got)
		}
	})
}

// TestFullDiskWithoutState: without plan-state each report would use up a try, so nothing is reported.
func TestFullDiskWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var full atomic.Bool
		full.Store(true)
		w.options.Verify = func(source.Snapshot) error {
			if full.Load() {
				return source.ErrNotStored
			}
			return nil
		}
		checksum := w.secret.deliverOld(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", false)}}, 1)
		w.start()
		time.Sleep(time.Hour)
		if got := w.secret.status(); got.FailureCount != 0 || len(w.ran()) > 0 {
			t.Errorf("ran %v, the hub reads %+v", w.ran(), got)
		}
		full.Store(false)
		w.waitAMinute()
		w.stop()
		if got := w.secret.status(); got.AppliedChecksum != checksum {
			t.Errorf("there is room, and the hub reads %+v", got)
		}
	})
}
