package upgrade

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

var (
	wanted     = map[string]string{"amd64": sumOf(newBinary), "arm64": sumOf("another")}
	upgraded   = plans.AgentStatus{Version: "of " + newBinary, Generation: 1, Phase: plans.UpgradeDone}
	rolledBack = plans.AgentStatus{Version: "of " + oldBinary, Generation: 1, Phase: plans.UpgradeRolledBack,
		Message: "version of the new agent did not reach the hub within 10m0s: service is auto-restart, restarted 7 times, result exit-code, " +
			"exit status 2, Hub unreachable"}
)

// TestPowerCutAtEveryStep cuts the power at each durable effect, before and after it. Whatever the moment, the machine has an agent, a good
// upgrade ends with the new one and a bad one with the previous one, and the hub knows which.
func TestPowerCutAtEveryStep(t *testing.T) {
	for _, good := range []bool{true, false} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("good=%t/after=%t", good, after), func(t *testing.T) {
				steps := 0
				for whole := false; !whole; {
					steps++
					synctest.Test(t, func(t *testing.T) { whole = cutAt(t, good, steps, after) })
					if t.Failed() {
						t.Fatalf("failed when the power was cut at effect %d", steps)
					}
					if steps > 100 {
						t.Fatal("it never ends")
					}
				}
				if steps < 10 {
					t.Errorf("only %d effects", steps)
				}
			})
		}
	}
}

// cutAt reports whether the upgrade was over before that effect.
func cutAt(t *testing.T, good bool, step int, after bool) bool {
	w := newWorld(t)
	w.unreachable[newBinary] = !good
	w.request(1, wanted)
	w.host.StopAt(step, after, w.powerOff)
	w.boot()
	time.Sleep(time.Hour)
	stopped := w.host.Stopped()
	w.kill()
	if stopped {
		w.host.Restart()
		w.boot()
		time.Sleep(time.Hour)
	}
	if good {
		w.check(newBinary, upgraded)
	} else {
		w.check(oldBinary, rolledBack)
	}
	w.end()
	return !stopped
}

// TestFailingEffects lets each kind of effect fail once.
func TestFailingEffects(t *testing.T) {
	for _, operation := range []string{"write", "mkdir", "symlink", "remove"} {
		t.Run(operation, func(t *testing.T) {
			for nth := 1; nth <= 8; nth++ {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.request(1, wanted)
					seen := 0
					w.host.FailWith(func(op, path string) error {
						if op == operation {
							if seen++; seen == nth {
								return fmt.Errorf("%s %s: no space left on device", op, path)
							}
						}
						return nil
					})
					w.boot()
					time.Sleep(time.Hour)
					w.check(newBinary, upgraded)
					w.end()
				})
			}
		})
	}
}

// TestRepeatedFailure has a machine on which the binary can never be replaced.
func TestRepeatedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(1, wanted)
		w.refuseBinary()
		w.boot()
		time.Sleep(time.Hour)
		w.check(oldBinary, plans.AgentStatus{Version: "of " + oldBinary, Generation: 1, Phase: plans.UpgradeRolledBack,
			Message: "replacing the binary was interrupted 3 times: replacing " + program + ": no space left on device"})
		// The next request is another upgrade.
		w.host.FailWith(nil)
		w.request(2, wanted)
		time.Sleep(time.Hour)
		want := upgraded
		want.Generation = 2
		w.check(newBinary, want)
		w.end()
	})
}

// TestWaitsForThePlan has an agent that applies a plan.
func TestWaitsForThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set(nil)
		w.boot()
		synctest.Wait()
		if err := w.gate.Acquire(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		gate := w.gate
		w.request(1, wanted)
		time.Sleep(2 * time.Hour)
		waiting := plans.AgentStatus{Version: "of " + oldBinary, Generation: 1, Phase: plans.UpgradeWaiting,
			Message: "waiting for the plan that is being applied"}
		w.check(oldBinary, waiting)
		w.checkStatus(&Status{Phase: plans.UpgradeWaiting, Generation: 1, Version: "of " + newBinary, Message: waiting.Message}, nil)
		gate.Release(1)
		time.Sleep(time.Hour)
		w.check(newBinary, upgraded)
		done := &Status{Phase: plans.UpgradeDone, Generation: 1, Version: "of " + newBinary}
		w.checkStatus(done, done)
		w.end()
	})
}

// TestStatusOfTrial has a new agent that does not reach the hub, and then the previous one again, without a hub that asks.
func TestStatusOfTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable[newBinary] = true
		w.request(1, wanted)
		w.boot()
		time.Sleep(time.Minute)
		trial := &Status{Phase: PhaseTrial, Generation: 1, Version: "of " + newBinary,
			Message: "the new agent must reach the hub within 10m0s, or the previous one is put back"}
		w.checkStatus(trial, trial)
		time.Sleep(time.Hour)
		ended := &Status{Phase: plans.UpgradeRolledBack, Generation: 1, Version: "of " + newBinary, Message: rolledBack.Message}
		w.checkStatus(ended, ended)
		w.end()
	})
}

// TestUnreadableState has a file that no agent has written.
func TestUnreadableState(t *testing.T) {
	w := newWorld(t)
	if err := w.host.WriteFile(stateDirectory+"/agent-upgrade", []byte("x"), fs.WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if got := ReadStatus(w.host, stateDirectory); got == nil || got.Phase != phaseUnknown || !strings.Contains(got.Message, "decoding") {
		t.Errorf("got %+v", got)
	}
}

// TestWithdrawn has a hub that asks for something else while the agent waits for its plan.
func TestWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.boot()
		synctest.Wait()
		gate := w.gate
		if err := gate.Acquire(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		w.request(1, wanted)
		time.Sleep(time.Hour)
		w.set([]byte(`{"generation":2}`))
		gate.Release(1)
		time.Sleep(time.Hour)
		w.check(oldBinary, plans.AgentStatus{Version: "of " + oldBinary})
		w.end()
	})
}

// TestAlreadyInstalled has an agent that is the requested one, and one that is asked for reports only.
func TestAlreadyInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.set([]byte(`{"generation":1}`))
		w.boot()
		time.Sleep(time.Minute)
		w.check(oldBinary, plans.AgentStatus{Version: "of " + oldBinary})
		w.request(1, map[string]string{"amd64": sumOf(oldBinary)})
		time.Sleep(time.Minute)
		w.check(oldBinary, plans.AgentStatus{Version: "of " + oldBinary, Generation: 1, Phase: plans.UpgradeDone})
		if len(w.host.Runs()) != 0 {
			t.Errorf("ran %v", w.host.Runs())
		}
		w.end()
	})
}

// TestBadDownload has a hub that hands out something else than it has signed, then fails, then recovers.
func TestBadDownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.offered["amd64"] = "malware"
		w.request(1, wanted)
		w.boot()
		time.Sleep(10 * time.Minute)
		if got := w.reported(); got.Phase != plans.UpgradeDownloading || !strings.Contains(got.Message, "checksum") {
			t.Errorf("reported is %+v", got)
		}
		w.checkStatus(&Status{Phase: plans.UpgradeDownloading, Generation: 1, Message: w.reported().Message}, nil)
		for path, file := range w.host.Files() {
			if strings.Contains(string(file.Content), "malware") {
				t.Errorf("%s contains what was not verified", path)
			}
		}
		w.mu.Lock()
		w.offered["amd64"], w.fail = newBinary, errors.New("HTTP 503")
		w.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if got := w.reported(); got.Phase != plans.UpgradeDownloading || !strings.Contains(got.Message, "503") {
			t.Errorf("reported is %+v", got)
		}
		w.mu.Lock()
		w.fail = nil
		w.mu.Unlock()
		time.Sleep(10 * time.Minute)
		w.check(newBinary, upgraded)
		w.end()
	})
}

// TestAnotherInstallation has somebody install a third agent while the new one does not reach the hub.
func TestAnotherInstallation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unreachable[newBinary] = true
		w.request(1, wanted)
		w.boot()
		time.Sleep(time.Minute)
		w.set([]byte(`{"generation":1}`))
		if err := w.host.WriteFile(program, []byte("a third agent"), fs.WithMode(0o755)); err != nil {
			t.Fatal(err)
		}
		w.kill()
		w.start()
		time.Sleep(time.Hour)
		w.check("a third agent", plans.AgentStatus{Version: "of a third agent"})
		w.end()
	})
}

// TestOlderHub has a hub that asks for nothing: it would refuse a report with a key that it does not know. An upgrade that the hub has
// withdrawn is committed without a report.
func TestOlderHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.boot()
		time.Sleep(time.Hour)
		w.check(oldBinary, plans.AgentStatus{})
		w.unreachable[newBinary] = true
		w.request(1, wanted)
		time.Sleep(time.Minute)
		w.set(nil)
		w.kill()
		delete(w.unreachable, newBinary)
		w.start()
		time.Sleep(time.Hour)
		w.check(newBinary, plans.AgentStatus{})
		w.end()
	})
}
