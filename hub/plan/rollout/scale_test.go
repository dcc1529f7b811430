package rollout

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
)

// rolloutWrites is what a whole rollout makes the hub write.
type rolloutWrites struct {
	// conditions are the changes of what machines say, of which each is written to the RKEBootstrap and to the Machine. cluster are those of
	// what the cluster says, and plans the deliveries and requests to drain.
	conditions, cluster, plans int
}

// upgrade runs the upgrade of a cluster with three servers, in which ten workers change at a time, and each takes as long as it takes.
func upgrade(tb testing.TB, workers int) (writes rolloutWrites) {
	tb.Helper()
	s := newSimulation(rand.New(rand.NewPCG(uint64(workers), 17)))
	s.spec.drain, s.spec.worker = true, "10"
	machines := []string{"server-0001:ec", "server-0002:ec", "server-0003:ec"}
	for i := range workers {
		machines = append(machines, fmt.Sprintf("worker-%04d:w", i))
	}
	s.addRunning(machines...)
	otherMachine := regexp.MustCompile(`(server|worker)-\d{4}`)
	said, cluster := map[string]string{}, ""
	s.onStep = func() {
		for _, d := range s.outcome.Decisions {
			if d.Deliver || d.Drain != "" || d.Uncordon {
				writes.plans++
			}
			if text := d.Reason + d.Message; said[d.Machine] != text {
				said[d.Machine] = text
				writes.conditions++
			} else {
				continue
			}
			if name := otherMachine.FindString(d.Message); name != "" {
				tb.Fatalf("%s speaks of %s: %s", d.Machine, name, d.Message)
			}
		}
		if text := s.outcome.Wait.Reason + s.outcome.Wait.Message; cluster != text {
			cluster = text
			writes.cluster++
		}
	}
	s.tick()
	writes = rolloutWrites{}
	s.spec.Version++
	for s.tick(); !s.outcome.Done; s.tick() {
		if s.step > 20*workers+100 {
			tb.Fatalf("not done after %d steps: %+v", s.step, s.outcome.Wait)
		}
	}
	if len(s.faults) > 0 {
		tb.Fatalf("rules were broken: %v", s.faults)
	}
	return writes
}

// checkWrites wants what a rollout writes to grow with the number of machines, and not with its square.
func checkWrites(tb testing.TB, workers int, writes rolloutWrites) {
	tb.Helper()
	// The states of a machine in an upgrade with a drain: waits for its turn, waits for others, is drained (2), gets its plan, and the agent
	// takes it (2) and applies it, the probes, the kubelet, is uncordoned (2), up to date.
	const perMachine = 14
	machines := workers + 3
	if most := perMachine * machines; writes.conditions > most {
		tb.Errorf("%d machines: their conditions are written %d times, more than %d for each", machines, writes.conditions, perMachine)
	}
	if most := perMachine * machines; writes.cluster > most {
		tb.Errorf("%d machines: the conditions of the cluster are written %d times, more than %d for each", machines, writes.cluster, perMachine)
	}
	// A request to drain, the plan, and the end of the drain.
	if writes.plans != 3*machines {
		tb.Errorf("%d machines: plan Secrets are written %d times, want three times for each", machines, writes.plans)
	}
}

func TestWritesGrowLinearly(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{30, 100, 300} {
		checkWrites(t, workers, upgrade(t, workers))
	}
}

// BenchmarkUpgrade runs whole upgrades, and counts what the hub writes for each machine.
func BenchmarkUpgrade(b *testing.B) {
	for _, workers := range []int{100, 300, 1000} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			var writes rolloutWrites
			for b.Loop() {
				writes = upgrade(b, workers)
			}
			checkWrites(b, workers, writes)
			machines := float64(workers + 3)
			b.ReportMetric(2*float64(writes.conditions)/machines, "machine-condition-writes/machine")
			b.ReportMetric(float64(writes.cluster)/machines, "cluster-condition-writes/machine")
			b.ReportMetric(float64(writes.plans)/machines, "plan-writes/machine")
		})
	}
}
