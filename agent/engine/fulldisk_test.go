package engine

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/run"
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
