package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/probe"
	"github.com/drover-dev/drover/plans"
)

// health answers probes by URL.
type health struct {
	mu    sync.Mutex
	state map[string]error
	asked map[string]int
	seen  probe.Certificates
}

func (h *health) set(url string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state[url] = err
}

func (h *health) check(_ context.Context, p plans.Probe) (probe.Certificates, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked[p.HTTPGet.URL]++
	return h.seen, h.state[p.HTTPGet.URL]
}

func (h *health) count(url string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[url]
}

func newHealth(w *world) *health {
	h := &health{state: map[string]error{}, asked: map[string]int{}}
	w.check = h.check
	return h
}

func probes(delay int, names ...string) map[string]plans.Probe {
	all := map[string]plans.Probe{}
	for _, name := range names {
		all[name] = plans.Probe{InitialDelaySeconds: delay, HTTPGet: plans.HTTPGetAction{URL: "http://" + name}}
	}
	return all
}

func TestSuccessIsReportedWithTheFirstAnswersOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := newHealth(w)
		h.set("http://sick", errors.New("down"))
		w.secret.deliver(plans.Plan{Probes: probes(10, "well", "sick")}, 1)
		w.start()
		time.Sleep(9 * time.Second)
		if got := w.secret.status(); got.State != plans.StateInProgress {
			t.Errorf("reported %s before any probe", got.State)
		}
		time.Sleep(2 * time.Second)
		want := map[string]plans.ProbeStatus{"well": {Healthy: true, SuccessCount: 1}, "sick": {FailureCount: 1}}
		got := w.secret.status()
		if diff := cmp.Diff(want, got.ProbeStatuses); diff != "" || got.State != plans.StateSucceeded {
			t.Error(got.State, diff)
		}
		if diff := cmp.Diff([]string{"in-progress/0/0", "succeeded/0/1"}, w.secret.history()); diff != "" {
			t.Error(diff)
		}
		w.waitAMinute()
		_, before := w.secret.counts()
		asked := h.count("http://well")
		time.Sleep(time.Hour)
		if _, after := w.secret.counts(); after != before {
			t.Errorf("%d writes though nothing changed", after-before)
		}
		if rounds := h.count("http://well") - asked; rounds != 720 {
			t.Errorf("probed %d times in an hour", rounds)
		}
		h.set("http://well", errors.New("down"))
		time.Sleep(11 * time.Second)
		if got := w.secret.status().ProbeStatuses["well"]; !got.Healthy || got.FailureCount < 2 {
			t.Errorf("got %+v", got)
		}
		time.Sleep(5 * time.Second)
		if got := w.secret.status().ProbeStatuses["well"]; got.Healthy {
			t.Errorf("got %+v", got)
		}
		// Another process goes on with what is known.
		w.stop()
		h.set("http://well", nil)
		w.start()
		time.Sleep(2 * time.Second)
		if got := w.secret.status().ProbeStatuses["well"]; !got.Healthy {
			t.Errorf("got %+v", got)
		}
		w.stop()
	})
}

// The end of a certificate is reported once, and again when there is another.
func TestEndsOfCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := newHealth(w)
		see := func(server, client time.Time, err error) {
			h.set("http://well", err)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.seen = probe.Certificates{Server: server, Client: client}
		}
		first, second := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2028, 1, 2, 3, 4, 5, 0, time.UTC)
		see(first, second, nil)
		w.secret.deliver(plans.Plan{Probes: probes(0, "well")}, 1)
		w.start()
		w.waitAMinute()
		expect := func(writes int, server, client time.Time) {
			t.Helper()
			_, before := w.secret.counts()
			time.Sleep(time.Hour)
			synctest.Wait()
			got := w.secret.status().ProbeStatuses["well"]
			if _, after := w.secret.counts(); after-before != writes || got.ServerCertificateNotAfter != server ||
				got.ClientCertificateNotAfter != client || !got.Healthy {
				t.Errorf("%d writes, %+v", after-before, got)
			}
		}
		expect(0, first, second)
		see(second, second, nil)
		expect(1, second, second)
		// Nothing is seen of a server that does not answer; the process that follows goes on with what is known.
		w.stop()
		see(time.Time{}, time.Time{}, nil)
		w.start()
		w.waitAMinute()
		expect(0, second, second)
		w.stop()
	})
}

func TestProbesOfAPlanThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		newHealth(w)
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "bad", false)}, Probes: probes(0, "well")}, 1)
		w.start()
		w.waitAMinute()
		w.stop()
		got := w.secret.status()
		if got.State != plans.StateFailed || !got.ProbeStatuses["well"].Healthy {
			t.Errorf("got %+v", got)
		}
	})
}

// TestProbesAreReportedTogether has a plan that fails, and a probe that waits for its initial delay: a report with all others alone
// would be taken for one of a machine on which everything is healthy.
func TestProbesAreReportedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		newHealth(w)
		plan := plans.Plan{Instructions: instructionsThatFail(), Probes: probes(0, "early")}
		maps.Copy(plan.Probes, probes(30, "late"))
		w.certificate(kubeletCertificate, time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC))
		w.secret.deliver(plan, 1)
		w.start()
		time.Sleep(25 * time.Second)
		if got := w.secret.status(); got.State != plans.StateFailed || len(got.ProbeStatuses) > 0 {
			t.Errorf("before the last probe: %+v", got)
		}
		time.Sleep(10 * time.Second)
		w.stop()
		if got := w.secret.status().ProbeStatuses; len(got) != 3 || !got["early"].Healthy || !got["late"].Healthy {
			t.Errorf("got %+v", got)
		}
	})
}

// TestProbesAfterAnotherAttempt has a plan whose second attempt succeeds and leaves the machine unhealthy: that the machine was healthy
// before does not count, whether the agent or the hub tries again.
func TestProbesAfterAnotherAttempt(t *testing.T) {
	for name, maxFailures := range map[string]int{"of the agent": 2, "of the hub": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				h := newHealth(w)
				w.host.Program("restart", func(_ context.Context, c run.Command) (run.Result, error) {
					if env(c, envAttempt) == "1" {
						return run.Result{ExitCode: 1}, nil
					}
					h.set("http://well", errors.New("down"))
					return run.Result{}, nil
				})
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "restart", false)}, Probes: probes(0, "well")},
					maxFailures)
				w.start()
				time.Sleep(3 * time.Second)
				if got := w.secret.status(); got.FailureCount != 1 || !got.ProbeStatuses["well"].Healthy {
					t.Errorf("after the first attempt: %+v", got)
				}
				if maxFailures == 1 {
					w.secret.hub(func(data plans.SecretData) { data[plans.KeyPlanState] = []byte(plans.StatePending) })
				}
				for tries := 0; tries < 100 && w.secret.status().State != plans.StateSucceeded; tries++ {
					time.Sleep(100 * time.Millisecond)
				}
				if got := w.secret.status(); got.State != plans.StateSucceeded || got.ProbeStatuses["well"].Healthy {
					t.Errorf("after the second attempt: %+v", got)
				}
				w.stop()
			})
		})
	}
}

func TestProbesThatAPlanDropsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		newHealth(w)
		w.secret.deliver(plans.Plan{Probes: probes(0, "a", "b")}, 1)
		w.start()
		w.waitAMinute()
		w.secret.deliver(plans.Plan{Probes: probes(0, "b")}, 1)
		w.waitAMinute()
		if diff := cmp.Diff(map[string]plans.ProbeStatus{"b": {Healthy: true, SuccessCount: 1}}, w.secret.status().ProbeStatuses); diff != "" {
			t.Error(diff)
		}
		w.stop()
	})
}

func periodic(name, command string, seconds int) plans.PeriodicInstruction {
	return plans.PeriodicInstruction{CommonInstruction: plans.CommonInstruction{Name: name, Command: command}, PeriodSeconds: seconds,
		SaveStderrOutput: true}
}

// times notes when programs run.
func (w *world) times(name string, exit func(run int) int) *[]time.Duration {
	started := time.Now()
	var runs []time.Duration
	w.host.Program(name, func(_ context.Context, c run.Command) (run.Result, error) {
		runs = append(runs, time.Since(started).Truncate(time.Second))
		return run.Result{Stdout: []byte(fmt.Sprint(len(runs))), Stderr: []byte("e"), ExitCode: exit(len(runs))}, nil
	})
	return &runs
}

// TestPeriodicInstructions shows that B17 and B18 cannot happen: one that hangs or fails holds no other up.
func TestPeriodicInstructions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		good := w.times("good", func(int) int { return 0 })
		usual := w.times("usual", func(int) int { return 0 })
		flaky := w.times("flaky", func(run int) int { return map[bool]int{true: 7}[run <= 3] })
		w.host.Program("hang", func(ctx context.Context, _ run.Command) (run.Result, error) {
			<-ctx.Done()
			return run.Result{ExitCode: -1}, ctx.Err()
		})
		w.secret.deliver(plans.Plan{PeriodicInstructions: []plans.PeriodicInstruction{
			periodic("hang", "hang", 5), periodic("flaky", "flaky", 100), periodic("good", "good", 100), periodic("usual", "usual", 0),
		}}, 1)
		w.start()
		time.Sleep(10 * time.Second)
		if got := w.secret.status(); got.State != plans.StateInProgress {
			t.Errorf("reported %s before the first runs", got.State)
		}
		time.Sleep(10 * time.Second)
		got := w.secret.status()
		if got.State != plans.StateSucceeded || len(got.PeriodicOutput) != 3 {
			t.Errorf("got %+v", got)
		}
		f := got.PeriodicOutput["flaky"]
		if f.Failures != 1 || f.ExitCode != 7 || f.LastFailedRunTime == "" || f.LastSuccessfulRunTime != "" || string(f.Stdout) != "1" ||
			string(f.Stderr) != "e" {
			t.Errorf("flaky: %+v", f)
		}
		time.Sleep(310 * time.Second)
		synctest.Wait()
		// 30 s after the first failure, 60 s after the second, 90 s after the third; then every 100 s.
		for name, check := range map[string]struct{ got, want []time.Duration }{
			"good":  {*good, seconds(0, 100, 200, 300)},
			"flaky": {*flaky, seconds(0, 30, 90, 180, 280)},
			"usual": {*usual, seconds(0)},
		} {
			if diff := cmp.Diff(check.want, check.got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if f := w.secret.status().PeriodicOutput["flaky"]; f.Failures != 0 || f.LastFailedRunTime != "" || f.LastSuccessfulRunTime == "" {
			t.Errorf("flaky: %+v", f)
		}
		w.stop()
		// A restart keeps the rhythm: at 330 s it is 30 s since the last run of good.
		w.start()
		time.Sleep(100 * time.Second)
		w.stop()
		if diff := cmp.Diff(seconds(0, 100, 200, 300, 400), *good); diff != "" {
			t.Error(diff)
		}
	})
}

func seconds(numbers ...int) []time.Duration {
	var all []time.Duration
	for _, n := range numbers {
		all = append(all, time.Duration(n)*time.Second)
	}
	return all
}

// TestPeriodThatIsForever: an instruction with the largest period runs once, and not all the time.
func TestPeriodThatIsForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		runs := w.times("p", func(int) int { return 0 })
		w.secret.deliver(plans.Plan{PeriodicInstructions: []plans.PeriodicInstruction{periodic("p", "p", math.MaxInt)}}, 1)
		w.start()
		w.waitAMinute()
		w.stop()
		if diff := cmp.Diff(seconds(0), *runs); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPeriodicInstructionsRunAfterEachApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		runs := w.times("p", func(int) int { return 0 })
		plan := plans.Plan{PeriodicInstructions: []plans.PeriodicInstruction{periodic("p", "p", 600)}}
		w.secret.deliver(plan, 1)
		w.start()
		w.waitAMinute()
		w.secret.deliver(plan, 1)
		w.waitAMinute()
		plan.Instructions = []plans.Instruction{once("only", "bad", false)}
		w.secret.deliver(plan, 1)
		w.waitAMinute()
		w.stop()
		if diff := cmp.Diff(seconds(0, 60, 120), *runs); diff != "" {
			t.Error(diff)
		}
	})
}

// TestReportThatIsTooLargeIsSentSmaller shows, with the one above, that B15 and S10 cannot happen: a report fits.
func TestReportThatIsTooLargeIsSentSmaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.host.Program("loud", func(context.Context, run.Command) (run.Result, error) {
			return run.Result{Stdout: make([]byte, 128<<10)}, nil
		})
		w.secret.limit = 20 << 10
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "loud", true)}}, 1)
		w.start()
		w.waitAMinute()
		w.stop()
		got := w.secret.status()
		if got.State != plans.StateSucceeded || len(got.AppliedOutput["only"]) > 20<<10 || len(got.AppliedOutput["only"]) == 0 {
			t.Errorf("got state %s and %d bytes", got.State, len(got.AppliedOutput["only"]))
		}
	})
}
