package upgrade

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/host/run"
)

// failRestarts lets the first restarts of the agent fail.
func (w *world) failRestarts(n int) {
	w.host.Program("systemctl", func(ctx context.Context, command run.Command) (run.Result, error) {
		if command.Args[0] == "try-restart" && n > 0 {
			n--
			return run.Result{ExitCode: 1, Stderr: []byte("terminated")}, nil
		}
		return w.systemctl(ctx, command)
	})
}

// reach lets the new agent reach the hub.
func (w *world) reach() {
	w.mu.Lock()
	delete(w.unreachable, newBinary)
	raw := w.raw
	w.mu.Unlock()
	w.set(raw)
}

// refuseBinary has the agent's binary not be replaced.
func (w *world) refuseBinary() {
	w.host.FailWith(func(op, path string) error {
		if op == "write" && path == program {
			return errors.New("no space left on device")
		}
		return nil
	})
}

// TestRollbackThatFails has a new agent that does not reach the hub, and a rollback that fails whenever its timer runs. When the agent
// reaches the hub at last, it completes the rollback.
func TestRollbackThatFails(t *testing.T) {
	for name, fail := range map[string]func(*world){
		"the binary cannot be replaced": (*world).refuseBinary,
		"the agent is not restarted":    func(w *world) { w.failRestarts(4) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.unreachable[newBinary] = true
				w.request(1, wanted)
				w.boot()
				time.Sleep(time.Minute)
				fail(w)
				time.Sleep(time.Hour)
				if got := w.reported(); got.Version == "of "+newBinary || got == rolledBack {
					t.Fatalf("reported is %+v", got)
				}
				w.host.FailWith(nil)
				w.reach()
				time.Sleep(time.Hour)
				w.check(oldBinary, rolledBack)
				w.end()
			})
		})
	}
}

// TestRollbackIsRetried has a new agent that does not reach the hub, and a rollback that fails for six hours.
func TestRollbackIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable[newBinary] = true
		w.request(1, wanted)
		w.boot()
		time.Sleep(time.Minute)
		w.refuseBinary()
		time.Sleep(6 * time.Hour)
		w.host.FailWith(nil)
		time.Sleep(2 * time.Hour)
		w.check(oldBinary, rolledBack)
		w.end()
	})
}

// TestRollbackThatIsKilled has a rollback that ends between the replacement of the binary and the restart. The next one restarts the agent.
func TestRollbackThatIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable[newBinary] = true
		w.failRestarts(1)
		w.request(1, wanted)
		w.boot()
		time.Sleep(time.Hour)
		w.check(oldBinary, rolledBack)
		w.end()
	})
}

// TestRollbackOfAMissingBinary has a new agent that does not reach the hub, and whose binary is gone, as when a virus scanner has moved it.
func TestRollbackOfAMissingBinary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable[newBinary] = true
		w.request(1, wanted)
		w.boot()
		time.Sleep(time.Minute)
		if err := w.host.Remove(program); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		w.check(oldBinary, rolledBack)
		w.end()
	})
}

// TestReplacedAgentDoesNothing has a hub that asks for something at the moment at which the agent is replaced.
func TestReplacedAgentDoesNothing(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.repeats = true
			w.request(1, wanted)
			w.boot()
			time.Sleep(time.Hour)
			w.check(newBinary, upgraded)
			executed := 0
			for _, command := range w.host.Runs() {
				if len(command.Args) == 1 && command.Args[0] == "--version" {
					executed++
				}
			}
			if executed != 1 {
				t.Errorf("the upgrade has begun %d times", executed)
			}
			w.end()
		})
	}
}
