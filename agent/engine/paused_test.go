package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/plans"
)

// TestPausedPlanWaitsForTheHub restarts the agent while its plan is paused and the hub does not answer. No other instruction starts before
// the hub has ended the pause, also if the pause came while an instruction was running.
func TestPausedPlanWaitsForTheHub(t *testing.T) {
	for name, test := range map[string]struct {
		paused time.Duration // before the restart
		reboot bool
		over   bool // the pause ends before the restart
		ran    []string
	}{
		"between two instructions":            {paused: 10 * time.Minute, ran: []string{"slow one@1", "slow two@1"}},
		"during an instruction":               {paused: time.Second, ran: []string{"slow one@1", "slow two@1"}},
		"during an instruction, and a reboot": {paused: time.Second, reboot: true, ran: []string{"slow one@1"}},
		"the pause is over":                   {paused: time.Second, over: true, ran: []string{"slow one@1", "slow two@1", "slow three@1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := startThreeSteps(t, 1, 90*time.Second)
				w.secret.annotate("true", "")
				time.Sleep(test.paused)
				if test.over {
					w.secret.annotate("", "")
					time.Sleep(time.Second)
				}
				w.secret.setDown(errors.New("connection refused"))
				if test.reboot {
					w.host.PowerOff()
				}
				w.stop()
				w.host.Restart()
				for range 2 {
					w.startAlone()
					time.Sleep(10 * time.Minute)
					w.stop()
				}
				w.checkRan(test.ran...)
				w.secret.setDown(nil)
				w.secret.annotate("", "")
				w.start()
				time.Sleep(10 * time.Minute)
				w.stop()
				w.checkState(plans.StateSucceeded)
				w.checkRan("slow one@1", "slow two@1", "slow three@1")
			})
		})
	}
}

// TestPauseDuringAnInstructionAndRestarts restarts the agent twice while an instruction of a paused plan runs, the second time without the
// hub, and once more with a hub that has ended the pause and delivered another plan. The first plan comes to its end before that one.
func TestPauseDuringAnInstructionAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := startThreeSteps(t, 1, 65*time.Second)
		w.secret.annotate("true", "")
		time.Sleep(5 * time.Second)
		w.stop()
		w.start()
		time.Sleep(5 * time.Second)
		w.secret.setDown(errors.New("connection refused"))
		w.stop()
		w.startAlone()
		time.Sleep(10 * time.Second)
		w.stop()
		w.checkRan("slow one@1")
		w.secret.setDown(nil)
		w.secret.annotate("", "")
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("other", "ok", false)}}, 1)
		w.start()
		time.Sleep(10 * time.Minute)
		w.stop()
		w.checkState(plans.StateSucceeded)
		w.checkRan("slow one@1", "slow two@1", "slow three@1", "ok other@1")
	})
}
