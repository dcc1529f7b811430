package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// TestClockThatJumps shows that B20 cannot happen: times that were noted before the clock jumped an hour, or by an agent whose zone nobody
// can know, delay nothing for longer than the pause that they are about.
func TestClockThatJumps(t *testing.T) {
	about := map[string]func(t *testing.T, w *world, noted time.Time){
		"a plan that has failed": clockAndFailure, "a periodic instruction": clockAndPeriodic, "an announced restart": clockAndInterlock,
	}
	for name, jump := range map[string]time.Duration{"an hour back": time.Hour, "an hour forth": -time.Hour, "a moment back": time.Second} {
		for what, test := range about {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test(t, newWorld(t), time.Now().UTC().Add(jump)) })
			})
		}
	}
}

func clockAndFailure(t *testing.T, w *world, noted time.Time) {
	checksum := w.secret.deliverOld(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", false)}}, -1)
	w.secret.hub(func(data plans.SecretData) {
		data[plans.KeyFailedChecksum], data[plans.KeyFailureCount] = []byte(checksum), []byte("1")
		data[plans.KeyLastApplyTime] = []byte(plans.FormatTime(noted))
	})
	w.start()
	w.waitAMinute()
	w.stop()
	w.checkRan("ok one@2")
}

func clockAndPeriodic(t *testing.T, w *world, noted time.Time) {
	w.secret.deliverOld(plans.Plan{PeriodicInstructions: []plans.PeriodicInstruction{
		{PeriodSeconds: 30, CommonInstruction: plans.CommonInstruction{Name: "p", Command: "ok"}}}}, -1)
	w.start()
	w.waitAMinute()
	w.stop()
	status := w.secret.status()
	status.PeriodicOutput = map[string]plans.PeriodicOutput{"p": {Name: "p", LastSuccessfulRunTime: plans.FormatTime(noted)}}
	w.secret.hub(func(data plans.SecretData) {
		if err := status.WriteTo(data); err != nil {
			t.Fatal(err)
		}
	})
	before := len(w.ran())
	w.start()
	time.Sleep(32 * time.Second)
	synctest.Wait()
	w.stop()
	if got := len(w.ran()) - before; got == 0 || got > 2 {
		t.Errorf("ran %d times", got)
	}
}

func clockAndInterlock(t *testing.T, w *world, noted time.Time) {
	w.options.InterlockDirectory = "/agent/lock"
	if err := w.host.WriteFile("/agent/lock/restart-pending", []byte(plans.FormatTime(noted)), fs.WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
	w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", false)}}, 1)
	w.start()
	time.Sleep(pendingExpires + time.Minute)
	synctest.Wait()
	w.stop()
	w.checkRan("ok one@1")
}

// TestTimesAreInUTC shows the other half of B20: what is reported is in UTC, whose name every reader knows.
func TestTimesAreInUTC(t *testing.T) {
	zone := time.Local
	defer func() { time.Local = zone }()
	time.Local = time.FixedZone("XYZ", 5*3600)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		periodic := plans.PeriodicInstruction{CommonInstruction: plans.CommonInstruction{Name: "p", Command: "ok"}}
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", false)},
			PeriodicInstructions: []plans.PeriodicInstruction{periodic}}, 1)
		begun := time.Now()
		w.start()
		w.waitAMinute()
		w.stop()
		got := w.secret.status()
		if since := got.LastApplyTime.Sub(begun); since < -time.Second || since > time.Minute {
			t.Errorf("applied at %s and not at %s", got.LastApplyTime, begun)
		}
		run, err := plans.ParseTime(got.PeriodicOutput["p"].LastSuccessfulRunTime)
		if since := run.Sub(begun); err != nil || since < -time.Second || since > time.Minute {
			t.Errorf("ran at %q: %v", got.PeriodicOutput["p"].LastSuccessfulRunTime, err)
		}
	})
}
