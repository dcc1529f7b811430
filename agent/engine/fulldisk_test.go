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
