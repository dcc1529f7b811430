package rollout

import (
	"fmt"
	"strings"
)

// detectionDelay is the number of steps after which everybody can see that a host is down.
const detectionDelay = 6

// downForChange returns whether the hub has begun to change a host, and that has not ended.
func (h *host) downForChange() bool { return h.changing && (h.state != ProgressApplied || !h.up()) }

// downUndetected returns whether nobody can know that a host is down: it went down a moment ago, its Node still reports it as ready, or the
// cluster has never reported that it votes.
func (h *host) downUndetected(step int) bool {
	return step-h.downSince <= detectionDelay || h.ready || h.joinURL == ""
}

// othersUp counts the other voters that can be taken for up, also those that are down without having been detected.
func (s *simulation) othersUp(h *host) (up, voters int) {
	names, _ := s.voters()
	for _, name := range names {
		other := s.hosts[name]
		if name == h.name || other == nil {
			continue
		}
		// Without a probe and a connection, one that is starting is known by its agent alone (docs/adr/0015-evidence-of-etcd.md).
		unknowable := s.k3s && !other.has("c") && !s.connected && other.power && other.agent
		if !other.downForChange() && (other.up() || other.downUndetected(s.step) || unknowable) {
			up++
		}
	}
	return up, len(names)
}

// messageKey is what a machine of a tier waits for.
type messageKey struct {
	machine, reason string
	tier            int
}

// checkMessage checks that the message of a machine that waits for others stays the same, whatever machines are added and removed, so that
// it is written once.
func (s *simulation) checkMessage(m *Machine, d Decision) {
	switch d.Reason {
	case ReasonWaitingForOthers, ReasonWaitingForTurn, ReasonWaitingForQuorum, ReasonWaitingForMachines, ReasonWaitingForInitNode:
	default:
		return
	}
	key := messageKey{d.Machine, d.Reason, tierOf(m)}
	if said, ok := s.lastMessage[key]; ok && said != d.Message {
		s.fault("%s waits for the same, and its message changes from %q to %q", d.Machine, said, d.Message)
	}
	s.lastMessage[key] = d.Message
}

// checkDelivery checks the rules for a plan that is delivered.
func (s *simulation) checkDelivery(h *host, m Machine, p *plan) {
	// Before the cluster's API server answers for the first time, nobody can know which members vote.
	if h.has("e") && m.Change == ChangeFirst && nodesSeen(s.inputs().Machines) {
		for _, other := range s.sortedHosts() {
			if other != h && other.has("e") && other.power && !other.deleting &&
				(s.etcd[other.name] == MemberLearner || other.downForChange() && s.etcd[other.name] != "") && (other.ready || !other.node) {
				s.fault("%s joins etcd while the change of %s has not ended", h.name, other.name)
			}
		}
	}
	if !m.Init && p.Server == "" {
		s.fault("%s has no server to join", h.name)
	}
	if !m.Change.Disruptive() || !m.joined() {
		return
	}
	if h.has("e") && !h.agent && s.now().Sub(h.lastSeen) > 2*agentTimeout {
		s.fault("%s gets a change although its agent is gone", h.name)
	}
	if h.downForChange() {
		return
	}
	s.checkUnavailable(h, m)
	if m.Change == ChangeDrain && s.spec.drain && m.Node == NodeReady && len(s.hosts) > 1 && s.remaining() > 1 && !h.cordoned {
		s.fault("%s is changed without a drain", h.name)
	}
	if !h.up() {
		return
	}
	for _, other := range s.sortedHosts() {
		if s.etcd[h.name] == MemberVoter && other != h && other.up() && s.etcd[other.name] == MemberVoter && s.mayRestart(other) {
			s.fault("%s is changed while the healthy %s may restart at any moment", h.name, other.name)
		}
		if h.has("e") && other != h && !m.changing() && s.connected && other.node && other.power && other.ready &&
			s.etcd[other.name] == MemberLearner {
			s.fault("%s is changed while %s does not vote yet", h.name, other.name)
		}
	}
	if h.has("e") && s.etcd[h.name] == MemberVoter && s.hasQuorum() {
		if up, voters := s.othersUp(h); up < min(quorum(voters), voters-1) {
			s.fault("%s is changed while only %d of %d other voters are up: %s", h.name, up, voters-1, s.describeVoters())
		}
	}
}

// mayRestart returns whether a host has a plan that restarts it and is not applied yet.
func (s *simulation) mayRestart(h *host) bool {
	m := s.machine(h)
	return !h.deleting && m.joined() && m.Progress != ProgressApplied && m.Underway.Disruptive()
}

// remaining counts the hosts that stay and have a Node, to which Pods could go.
func (s *simulation) remaining() int {
	n := 0
	for _, h := range s.hosts {
		if !h.deleting && h.applied != nil && h.node {
			n++
		}
	}
	return n
}

// checkUnavailable checks maxUnavailable for a machine that is drained or restarted.
func (s *simulation) checkUnavailable(h *host, m Machine) {
	if h.drain.Requested != "" || m.changing() || m.unavailable() {
		return
	}
	g := groupOf(&m)
	changing, stay := 0, 0
	for _, other := range s.sortedHosts() {
		if m := s.machine(other); other.deleting || groupOf(&m) != g {
			continue
		}
		stay++
		if other != h && (other.downForChange() && other.ready || other.drain.Requested != "") {
			changing++
		}
	}
	limit := g.limit(s.inputs(), stay)
	if changing >= limit {
		s.fault("%s is made unavailable while %d of %d %ss are, want at most %d", h.name, changing, stay, g.title(), limit)
	}
}

// checkRestart checks that no kubelet becomes newer than a server.
func (s *simulation) checkRestart(h *host, before plan) {
	if h.server() || h.attempt.Version <= before.Version {
		return
	}
	for _, server := range s.sortedHosts() {
		if server.has("c") && !server.deleting && server.applied != nil && server.running.Version < h.attempt.Version {
			s.fault("the kubelet of %s becomes newer than the server %s", h.name, server.name)
		}
	}
}

// checkEtcdRestart checks the restart of a healthy member: no other may be down for a change at the same time, and etcd must keep its
// quorum, unless it has too few members for that. It uses the real state, not the inputs of rollout.
func (s *simulation) checkEtcdRestart(h *host) {
	// Before the cluster's API server answers for the first time, nobody can know which members vote.
	if s.etcd[h.name] != MemberVoter || !nodesSeen(s.inputs().Machines) {
		return
	}
	voters, up := s.voters()
	excused := len(voters) <= 2
	for _, name := range voters {
		other := s.hosts[name]
		if other == nil || other == h {
			continue
		}
		// A machine that is being deleted is not verified again. A new machine counts once its first plan is applied: before that it
		// restarts as often as it needs to join, even after etcd has promoted it.
		if other.restarting && !other.up() && other.power && !other.deleting && h.applied != nil && other.applied != nil {
			s.fault("%s restarts while %s restarts for a change", h.name, name)
		}
		// Nobody could know of what went down shortly before the delivery, or after it.
		excused = excused || !other.up() && s.detectedAt(other) > h.changeStartedAt
	}
	if !excused && up >= quorum(len(voters)) && up-1 < quorum(len(voters)) {
		s.fault("%s restarts and takes etcd's quorum: %d of %d voters were up", h.name, up, len(voters))
	}
}

// detectedAt is the first step at which it can be known that a host is down.
func (s *simulation) detectedAt(h *host) int { return h.downSince + detectionDelay }

// checkRemoval checks the removal of a member from etcd.
func (s *simulation) checkRemoval(h *host) {
	if s.etcd[h.name] != MemberVoter || !s.established {
		return
	}
	up, voters := s.othersUp(h)
	if voters == 1 {
		s.fault("the last member %s is removed", h.name)
	}
	if up < quorum(voters-1) {
		s.fault("%s is removed while only %d of %d other voters are up", h.name, up, voters-1)
	}
	for _, other := range s.sortedHosts() {
		if other != h && (other.removalRequested && s.etcd[other.name] != "" ||
			other.downForChange() && other.ready && other.up() && !other.deleting && other.has("e")) {
			s.fault("%s is removed from etcd while %s changes", h.name, other.name)
		}
	}
}

// checkQuorum checks that a lost quorum is due to faults alone, not to a change together with faults that could be known before.
func (s *simulation) checkQuorum() {
	if !s.established || s.hasQuorum() {
		return
	}
	lostBefore := s.quorumLostAt
	s.quorumLostAt = s.step
	voters, up := s.voters()
	changing, since := 0, s.step
	for _, name := range voters {
		if h := s.hosts[name]; h != nil && !h.up() && h.downForChange() && h.power {
			changing++
			since = min(since, h.changeStartedAt)
		}
	}
	if changing == 0 || up+changing < quorum(len(voters)) || since-lostBefore <= detectionDelay {
		// Faults explain it, or the quorum was back for too short a time to be detected.
		return
	}
	for _, name := range voters {
		if h := s.hosts[name]; h != nil && !h.up() && !h.downForChange() && h.downUndetected(since) {
			return
		}
	}
	if len(voters) <= 2 && changing == 1 {
		return
	}
	s.fault("etcd has lost its quorum: %d of %d voters are up, %d are down for a change: %s", up, len(voters), changing, s.describeVoters())
}

func (s *simulation) describeVoters() string {
	voters, _ := s.voters()
	var states []string
	for _, name := range voters {
		states = append(states, s.describe(name))
	}
	return strings.Join(states, ", ")
}

// describe returns the state of a host for the message of a fault.
func (s *simulation) describe(name string) string {
	h := s.hosts[name]
	switch {
	case h == nil:
		return name + " is gone"
	case h.up():
		return name + " is up"
	case h.downForChange():
		return fmt.Sprintf("%s is down for a change since step %d", name, h.changeStartedAt)
	}
	return fmt.Sprintf("%s is down since step %d", name, h.downSince)
}
