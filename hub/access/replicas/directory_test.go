package replicas

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

func TestSingleReplica(t *testing.T) {
	local := &sessions{keys: map[string]bool{}}
	d := New(Options{Local: local, ReplicaID: "a"})
	var changed []string
	d.OnChange(func(key string) { changed = append(changed, fmt.Sprint(key, " ", d.Connected(key))) })
	local.set("c-1", true)
	local.set("c-1", false)
	if diff := cmp.Diff([]string{"c-1 true", "c-1 false"}, changed); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if _, found := d.Owner("c-1"); found {
		t.Error("another replica has the session")
	}
	if got := d.Replicas(); got != 1 {
		t.Errorf("%d replicas take sessions, want 1", got)
	}
}

func TestSessionsOfOtherReplicas(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a, b, c := newReplica(t, "a", ca, nil), newReplica(t, "b", ca, nil), newReplica(t, "c", ca, nil)
	const old = 2*keysPerMessage + 1
	for i := range old {
		a.own.keys[fmt.Sprintf("old-%d", i)] = true
	}
	join(t, a, b, c)
	for _, r := range []*replica{a, b, c} {
		if !r.Directory.Connected("old-0") || !r.Directory.Connected("old-2000") {
			t.Errorf("replica %s does not know the sessions from before it joined", r.opts.ReplicaID)
		}
	}
	if _, found := a.Owner("old-0"); found {
		t.Error("a replica forwards requests for its own session")
	}
	// A replica calls back after it knows a session, and after it has lost one.
	wait.Until(t, timeout, "the changes of these sessions", func() bool { return len(c.changes) >= old })
	for len(c.changes) > 0 {
		<-c.changes
	}

	b.own.set("new", true)
	wait.Until(t, timeout, "a new session", func() bool { _, found := c.Owner("new"); return found && c.Directory.Connected("new") })
	a.own.set("new", true)
	wait.Until(t, timeout, "a second session", func() bool { c.mu.RLock(); defer c.mu.RUnlock(); return len(c.owners["new"]) == 2 })
	b.own.set("new", false)
	wait.Until(t, timeout, "the first session to end", func() bool { c.mu.RLock(); defer c.mu.RUnlock(); return len(c.owners["new"]) == 1 })
	a.own.set("new", false)
	wait.Until(t, timeout, "the session to end", func() bool { return !c.Directory.Connected("new") && len(c.changes) >= 2 })
	if got := len(c.changes); got != 2 {
		t.Errorf("%d changes for a session that moved between replicas, want 2: connected and disconnected", got)
	}
}

// TestMoreChangesThanPending: a replica that is too far behind for single changes gets a snapshot.
func TestMoreChangesThanPending(t *testing.T) {
	local := &sessions{keys: map[string]bool{}}
	d := New(Options{Local: local, ReplicaID: "a"})
	s, unsubscribe := d.publish.subscribe()
	defer unsubscribe()
	if first := s.next(local); len(first) != 1 || !first[0].Snapshot || !first[0].Complete {
		t.Fatalf("the first message is %+v, want a snapshot of nothing", first)
	}
	local.set("x", true)
	local.set("x", false)
	local.set("y", true)
	if diff := cmp.Diff([]message{{Have: []string{"y"}, Gone: []string{"x"}}}, s.next(local)); diff != "" {
		t.Errorf("the message about sessions that were added and removed (-want +got):\n%s", diff)
	}
	for i := range 3 * maxPending {
		local.set(fmt.Sprint(i), true)
	}
	if len(s.pending) > maxPending {
		t.Errorf("%d names wait, want %d at most", len(s.pending), maxPending)
	}
	messages := s.next(local)
	keys := []string{}
	for _, m := range messages {
		keys = append(keys, m.Have...)
	}
	if len(keys) != 3*maxPending+1 || !messages[0].Snapshot || !messages[len(messages)-1].Complete {
		t.Errorf("a replica that was behind got %d keys in %d messages, want a snapshot of all", len(keys), len(messages))
	}
	if rest := s.next(local); rest != nil {
		t.Errorf("got %+v after everything was sent", rest)
	}
}

// newReplicas returns two replicas of a hub, of which the second has a session c-1 that the first knows.
func newReplicas(t *testing.T) (a, b *replica) {
	t.Helper()
	ca := newAuthority(t)
	a, b = newReplica(t, "a", ca, nil), newReplica(t, "b", ca, nil)
	join(t, a, b)
	b.own.set("c-1", true)
	wait.Until(t, timeout, "the session", func() bool { return a.Directory.Connected("c-1") })
	return a, b
}

func TestFrozenReplica(t *testing.T) {
	t.Parallel()
	a, b := newReplicas(t)

	begin := time.Now()
	b.freezer.freeze(true)
	wait.Until(t, timeout, "the frozen replica's session to be forgotten", func() bool { return !a.Directory.Connected("c-1") })
	if took := time.Since(begin); took < heartbeatInterval {
		t.Errorf("a frozen replica was forgotten after %s, want about %s", took, heartbeatTimeout)
	}
	if got := a.Replicas(); got != 1 {
		t.Errorf("%d replicas take sessions while the other one is frozen, want 1", got)
	}
	b.freezer.freeze(false)
	wait.Until(t, timeout, "its sessions to come back", func() bool { return a.Directory.Connected("c-1") && a.Replicas() == 2 })
}

// TestForgottenReplica: a replica that was forgotten although it responds, as after a jump of this one's clock, is known again, and so are
// sessions that it gets later.
func TestForgottenReplica(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a, b := newReplica(t, "a", ca, nil), newReplica(t, "b", ca, respondWith("b"))
	join(t, a, b)
	b.own.set("c-1", true)
	wait.Until(t, timeout, "the session", func() bool { return a.Directory.Connected("c-1") })
	a.mu.RLock()
	peer := a.peers["b"]
	a.mu.RUnlock()
	a.forget(peer, "silent")
	b.own.set("c-2", true)
	for _, key := range []string{"c-1", "c-2"} {
		wait.Until(t, timeout, "its sessions to come back", func() bool { return a.Directory.Connected(key) })
		got, err := send(a.Directory, key, request(t, http.MethodGet, "/k8s/clusters/"+key, nil))
		if err != nil || !strings.HasPrefix(got, "b GET") {
			t.Errorf("a request for %s is answered with %q, %v", key, got, err)
		}
	}
}

// TestUpdateOfForgottenReplica: what was under way from a replica when it was forgotten does not make it the owner of a session.
func TestUpdateOfForgottenReplica(t *testing.T) {
	d := New(Options{Local: &sessions{keys: map[string]bool{}}, ReplicaID: "a"})
	p := newPeer(t.Context(), Member{ID: "b"}, &tls.Config{})
	d.replace(p, map[string]struct{}{"c-1": {}})
	if owner, alive := d.choose("c-1", nil); owner != p || alive == nil {
		t.Errorf("the owner of c-1 is %v", owner)
	}
	d.forget(p, "silent")
	d.update(p, []string{"c-2"}, nil)
	for _, key := range []string{"c-1", "c-2"} {
		if _, found := d.Owner(key); found || d.Connected(key) {
			t.Errorf("a replica that was forgotten has a session of %s", key)
		}
	}
}

func TestKilledReplica(t *testing.T) {
	t.Parallel()
	var a *replica
	for attempt := 1; ; attempt++ { // this process may stand still for as long as a heartbeat takes
		var b *replica
		a, b = newReplicas(t)
		_ = b.server.Listener.Close()
		b.server.CloseClientConnections()
		took := wait.Until(t, timeout, "the killed replica's session to be forgotten", func() bool { return !a.Directory.Connected("c-1") })
		if took <= heartbeatTimeout {
			break
		}
		if attempt == 3 {
			t.Fatalf("a killed replica was forgotten after %s, want at once", took)
		}
	}
	a.SetMembers(nil)
	wait.Until(t, timeout, "the replica to be removed", func() bool { a.mu.RLock(); defer a.mu.RUnlock(); return len(a.peers) == 0 })
}

// TestMemberWithoutLease: while the Kubernetes API is unreachable and no Lease is renewed, replicas that respond stay members.
func TestMemberWithoutLease(t *testing.T) {
	t.Parallel()
	a, _ := newReplicas(t)
	a.SetMembers(nil)
	time.Sleep(2 * heartbeatInterval)
	if !a.Directory.Connected("c-1") || a.Replicas() != 2 {
		t.Error("a replica that responds was dropped because of its Lease")
	}
}

// TestReusedAddress: another replica responds at the address of a former one, as when a pod got the address of another.
func TestReusedAddress(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a, b := newReplica(t, "a", ca, nil), newReplica(t, "b", ca, nil)
	b.own.set("c-1", true)
	go func() { _ = a.Start(t.Context()) }()
	a.SetMembers([]Member{{ID: "former", Address: b.member().Address}, b.member()})
	wait.Until(t, timeout, "the replica that is there", func() bool { return a.Directory.Connected("c-1") })
	time.Sleep(2 * heartbeatInterval)
	if got := a.Replicas(); got != 2 {
		t.Errorf("%d replicas are counted, want 2: one address is that of a replica that is gone", got)
	}
}

// TestStoppedReplica: a replica that others follow can shut down.
func TestStoppedReplica(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a, b := newReplica(t, "a", ca, nil), newReplica(t, "b", ca, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	go func() { _ = a.Start(t.Context()) }()
	a.SetMembers([]Member{b.member()})
	wait.Until(t, timeout, "the replica", func() bool { return a.Replicas() == 2 })
	stop()
	<-ended
	quick, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := b.server.Config.Shutdown(quick); err != nil {
		t.Errorf("the server does not shut down while others follow: %v", err)
	}
	wait.Until(t, timeout, "the replica to be removed", func() bool { return a.Replicas() == 1 })
}
