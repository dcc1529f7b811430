//go:build e2e

package replicas

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReplicas takes one replica after the other away. It is one test, since a hub of three replicas takes its time to start.
func TestReplicas(t *testing.T) {
	e := start(t)
	for i := range 3 {
		e.addCluster(t, fmt.Sprintf("far-%d", i))
	}
	e.awaitSessions(t)
	t.Run("upgraded", e.upgraded)
	t.Run("frozen", e.frozen)
	t.Run("killed", e.killed)
	t.Run("drained", e.drained)
}

// awaitSessions waits until every agent has tunnels to two replicas, so that every replica reaches every cluster whichever is taken away.
func (e *env) awaitSessions(t *testing.T) {
	t.Helper()
	for _, a := range e.agents {
		until(t, 3*time.Minute, "two tunnels of "+a.cluster, func() error {
			if n := a.tunnels(t); n != 2 {
				return fmt.Errorf("%d are up, see %s", n, a.log)
			}
			return nil
		})
		for _, h := range e.hubs {
			until(t, time.Minute, h.name+" to reach "+a.cluster, func() error {
				_, err := e.newCaller(h.gateway, 5*time.Second).call(t.Context(), http.MethodGet, a.cluster, "/api/v1/namespaces/default", nil)
				return err
			})
		}
	}
}

// leading returns the replica that leads, as its log tells.
func (e *env) leading(t *testing.T) *hub {
	t.Helper()
	var leader *hub
	until(t, 2*time.Minute, "a replica to lead", func() error {
		i := slices.IndexFunc(e.hubs, func(h *hub) bool { return h.isLeader(t) })
		if i < 0 {
			return errors.New("none does")
		}
		leader = e.hubs[i]
		return nil
	})
	return leader
}

func (e *env) others(h *hub) []*hub {
	return slices.DeleteFunc(slices.Clone(e.hubs), func(o *hub) bool { return o == h })
}

// frozen stops a replica as a machine does that swaps, or is suspended.
func (e *env) frozen(t *testing.T) {
	repeated(t, func() error {
		victim := e.others(e.leading(t))[0]
		err := e.under(t, e.others(victim), func() {
			victim.signal(t, syscall.SIGSTOP)
			time.Sleep(8 * time.Second)
			victim.signal(t, syscall.SIGCONT)
			time.Sleep(time.Second)
		})
		e.awaitSessions(t)
		return err
	})
}

// killed ends the replica that leads without a word.
func (e *env) killed(t *testing.T) {
	repeated(t, func() error {
		victim := e.leading(t)
		previous := e.leader(t)
		err := e.under(t, e.others(victim), func() {
			begin := time.Now()
			victim.kill()
			e.awaitAnotherLeader(t, previous, begin, "it was killed")
		})
		e.restart(t, victim)
		return err
	})
}

// drained ends the replica that leads in order.
func (e *env) drained(t *testing.T) {
	repeated(t, func() error {
		victim := e.leading(t)
		previous := e.leader(t)
		var elected time.Duration
		err := e.under(t, e.others(victim), func() {
			begin := time.Now()
			victim.signal(t, syscall.SIGTERM)
			elected = e.awaitAnotherLeader(t, previous, begin, "it was told to stop")
			victim.wait(t, drainDelay+drainTime+time.Minute)
			t.Logf("it was gone %s after it was told to stop", time.Since(begin).Round(time.Millisecond))
		})
		for _, address := range e.leases(t) {
			if address == victim.gateway {
				t.Errorf("%s has left its Lease behind", victim.name)
			}
		}
		if limit := drainDelay + 5*time.Second; elected > limit {
			err = errors.Join(err, fmt.Errorf(
				"another replica led after %s, though the one before could give its Lease back within %s", elected, limit))
		}
		if err != nil {
			e.restart(t, victim)
		}
		return err
	})
}

// restart starts a replica that has ended.
func (e *env) restart(t *testing.T, h *hub) {
	t.Helper()
	h.start(t)
	until(t, 2*time.Minute, "it to be ready again", func() error { return e.ready(h) })
	e.awaitSessions(t)
}

// awaitAnotherLeader waits until another replica leads and its controllers work, which a Cluster that is created tells. It returns how long
// after begin another one led.
func (e *env) awaitAnotherLeader(t *testing.T, previous string, begin time.Time, since string) time.Duration {
	t.Helper()
	until(t, 2*time.Minute, "another replica to lead", func() error {
		if holder := e.leader(t); holder == "" || holder == previous {
			return fmt.Errorf("the Lease is held by %q", holder)
		}
		return nil
	})
	elected := time.Since(begin)
	e.imported++
	e.importCluster(t, fmt.Sprintf("%s-%d", strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), e.imported))
	t.Logf("another replica led %s after %s, and had taken up its work after %s",
		elected.Round(10*time.Millisecond), since, time.Since(begin).Round(10*time.Millisecond))
	return elected
}
