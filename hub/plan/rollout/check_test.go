package rollout

import (
	"fmt"
	"strings"
)

// lag is after how many steps everybody can see that a host is down.
const lag = 6

// taken reports whether the hub has taken a host away and it is not back.
func (h *host) away() bool { return h.taken && (h.state != ProgressApplied || !h.up()) }

// unseen reports whether nobody can see that a host is down: it went down a moment ago, or the cluster has not told since, or was never
// there to tell that it votes.
func (h *host) unseen(step int) bool { return step-h.downSince <= lag || h.ready || h.joinURL == "" }

// othersUp counts the voters beside a host that count as up: those that went down without the hub a moment ago do, since that is not seen
// yet.
func (w *world) othersUp(h *host) (up, voters int) {
	names, _ := w.voters()
	for _, name := range names {
		other := w.hosts[name]
		if name == h.name || other == nil {
			continue
		}
		if other.up() && !other.away() || !other.up() && !other.away() && other.unseen(w.step) {
			up++
		}
	}
	return up, len(names)
}

// checkMessage looks at what a machine says while it waits for others: the same at all times, so that it is written once for each time that
// it waits, however many others are added and removed meanwhile.
func (w *world) checkMessage(m Machine, d Decision) {
	switch d.Reason {
	case ReasonWaitingForOthers, ReasonWaitingForTurn, ReasonWaitingForQuorum, ReasonWaitingForMachines, ReasonWaitingForInitNode:
	default:
		return
	}
	key := fmt.Sprint(d.Machine, " ", tiers[tierOf(m)].title, " ", d.Reason)
	if said, ok := w.said[key]; ok && said != d.Message {
		w.fault("%s waits for the same, and its message changes from %q to %q", d.Machine, said, d.Message)
	}
	w.said[key] = d.Message
}

// checkDelivery looks at a plan that is delivered.
func (w *world) checkDelivery(h *host, m Machine, p *plan) {
	// Before the API of the cluster answers for the first time, nobody can tell who votes.
	if h.has("e") && m.Change == ChangeFirst && nodesSeen(w.inputs().Machines) {
		for _, other := range w.sorted() {
			if other != h && other.has("e") && other.power && !other.deleting &&
				(w.etcd[other.name] == MemberLearner || other.away() && w.etcd[other.name] != "") && (other.ready || !other.node) {
				w.fault("%s is to join etcd while %s is not through with its change", h.name, other.name)
			}
		}
	}
	if !m.Init && p.Server == "" {
		w.fault("%s is told to join nothing", h.name)
	}
	if !m.Change.Disruptive() || !m.joined() {
		return
	}
	if h.has("e") && !h.agent && w.now().Sub(h.lastSeen) > 2*agentTimeout {
		w.fault("%s is given a change that nobody can take", h.name)
	}
	if h.away() {
		return
	}
	w.checkTaken(h, m)
	if m.Change == ChangeDrain && w.spec.drain && m.Node == NodeReady && len(w.hosts) > 1 && w.staying() > 1 && !h.cordoned {
		w.fault("%s is changed without a drain", h.name)
	}
	if !h.up() {
		return
	}
	for _, other := range w.sorted() {
		if w.etcd[h.name] == MemberVoter && other != h && other.up() && w.etcd[other.name] == MemberVoter && w.mayRestart(other) {
			w.fault("%s is changed while the healthy %s may restart at any moment", h.name, other.name)
		}
		if h.has("e") && other != h && !m.changing() && w.connected && other.node && other.power && other.ready &&
			w.etcd[other.name] == MemberLearner {
			w.fault("%s is changed while %s does not vote yet", h.name, other.name)
		}
	}
	if h.has("e") && w.etcd[h.name] == MemberVoter && w.quorate() {
		if up, voters := w.othersUp(h); up < min(quorum(voters), voters-1) {
			w.fault("%s is changed while only %d of %d other voters are up", h.name, up, voters-1)
		}
	}
}

// mayRestart reports whether the hub has given a host a plan that restarts it, and it is not through with that.
func (w *world) mayRestart(h *host) bool {
	m := w.machine(h)
	return !h.deleting && m.joined() && m.Progress != ProgressApplied && m.Underway.Disruptive()
}

func (w *world) staying() int {
	n := 0
	for _, h := range w.hosts {
		if !h.deleting {
			n++
		}
	}
	return n
}

// checkTaken looks at a machine that is taken away from the others of its kind.
func (w *world) checkTaken(h *host, m Machine) {
	if h.drain.Requested != "" || m.changing() || m.unavailable() {
		return
	}
	g := groupOf(m)
	taken, stay := 0, 0
	for _, other := range w.sorted() {
		if other.deleting || groupOf(w.machine(other)) != g {
			continue
		}
		stay++
		if other != h && (other.away() && other.ready || other.drain.Requested != "") {
			taken++
		}
	}
	limit := g.limit(w.inputs(), stay)
	if taken >= limit {
		w.fault("%s is taken away while %d of %d %ss are, and %d may be", h.name, taken, stay, g.title(), limit)
	}
}

// checkRestart looks at a machine whose distribution restarts with another version.
func (w *world) checkRestart(h *host, before plan) {
	if h.server() || h.work.Version <= before.Version {
		return
	}
	for _, s := range w.sorted() {
		if s.has("c") && !s.deleting && s.applied != nil && s.runs.Version < h.work.Version {
			w.fault("the kubelet of %s becomes newer than the server %s", h.name, s.name)
		}
	}
}

// checkEtcdRestart looks at a healthy member that is restarted: no other healthy one may be down for a change at the same time, and etcd
// must keep its quorum, unless it has too few members for that. It knows nothing of what rollout believes.
func (w *world) checkEtcdRestart(h *host) {
	// Before the API of the cluster answers for the first time, nobody can tell who votes.
	if w.etcd[h.name] != MemberVoter || !nodesSeen(w.inputs().Machines) {
		return
	}
	voters, up := w.voters()
	excused := len(voters) <= 2
	for _, name := range voters {
		other := w.hosts[name]
		if other == nil || other == h {
			continue
		}
		// One that is being deleted is never verified again: it goes. A newcomer counts from when its first plan is applied: until then it
		// restarts as often as it needs to join, also after the moment in which it has come to vote.
		if other.restarting && !other.up() && other.power && !other.deleting && h.applied != nil && other.applied != nil {
			w.fault("%s restarts while the hub has %s restart", h.name, name)
		}
		// What went down after the change was on its way, or a moment before, nobody could know.
		excused = excused || !other.up() && w.seenDown(other) > h.takenAt
	}
	if !excused && up >= quorum(len(voters)) && up-1 < quorum(len(voters)) {
		w.fault("%s restarts and takes etcd's quorum: %d of %d voters were up", h.name, up, len(voters))
	}
}

// seenDown is the step from which on it can be known that a host is down.
func (w *world) seenDown(h *host) int { return h.downSince + lag }

// checkRemoval looks at a member that etcd is asked to remove.
func (w *world) checkRemoval(h *host) {
	if w.etcd[h.name] != MemberVoter || !w.established {
		return
	}
	up, voters := w.othersUp(h)
	if voters == 1 {
		w.fault("the last member %s is removed", h.name)
	}
	if up < quorum(voters-1) {
		w.fault("%s is removed while only %d of %d other voters are up", h.name, up, voters-1)
	}
	for _, other := range w.sorted() {
		if other != h && (other.asked && w.etcd[other.name] != "" ||
			other.away() && other.ready && other.up() && !other.deleting && other.has("e")) {
			w.fault("%s is removed from etcd while %s changes", h.name, other.name)
		}
	}
}

// checkQuorum looks at etcd as it is. Faults alone may take its quorum; the hub may not, not even together with faults that could be seen
// before.
func (w *world) checkQuorum() {
	if !w.established || w.quorate() {
		return
	}
	lostBefore := w.lostAt
	w.lostAt = w.step
	voters, up := w.voters()
	taken, since := 0, w.step
	for _, name := range voters {
		if h := w.hosts[name]; h != nil && !h.up() && h.away() && h.power {
			taken++
			since = min(since, h.takenAt)
		}
	}
	if taken == 0 || up+taken < quorum(len(voters)) || since-lostBefore <= lag {
		// Faults are enough, or what was there was back too short to be seen.
		return
	}
	for _, name := range voters {
		if h := w.hosts[name]; h != nil && !h.up() && !h.away() && h.unseen(since) {
			return
		}
	}
	if len(voters) <= 2 && taken == 1 {
		return
	}
	var states []string
	for _, name := range voters {
		states = append(states, w.tellHost(name))
	}
	w.fault("etcd has lost its quorum: %d of %d voters are up, %d were taken away: %s", up, len(voters), taken, strings.Join(states, ", "))
}

// tellHost says what is true of a host, for those who look for a fault.
func (w *world) tellHost(name string) string {
	h := w.hosts[name]
	switch {
	case h == nil:
		return name + " is gone"
	case h.up():
		return name + " is up"
	case h.away():
		return fmt.Sprintf("%s was taken away at step %d", name, h.takenAt)
	}
	return fmt.Sprintf("%s has been down since step %d", name, h.downSince)
}
