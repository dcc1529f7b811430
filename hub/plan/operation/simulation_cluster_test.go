package operation

import (
	"slices"
	"strings"

	"github.com/drover-dev/drover/hub/plan/rollout"
)

// voters returns the voting members of a cluster, sorted by name, and how many are up. h is left out of both, if it is not nil.
func (s *simulation) voters(c *etcd, without *host) (voters []string, up int) {
	for name, membership := range c.members {
		if membership != rollout.MemberVoter || without != nil && name == without.name {
			continue
		}
		voters = append(voters, name)
		if h := s.hosts[name]; h != nil && h.up() && h.data == c {
			up++
		}
	}
	slices.Sort(voters)
	return voters, up
}

func (s *simulation) hasQuorum(c *etcd) bool {
	voters, up := 0, 0
	for name, membership := range c.members {
		if membership != rollout.MemberVoter {
			continue
		}
		voters++
		if h := s.hosts[name]; h != nil && h.up() && h.data == c {
			up++
		}
	}
	return voters > 0 && up >= voters/2+1
}

// current is the cluster that works; nil for none.
func (s *simulation) current() *etcd {
	for _, h := range s.sortedHosts() {
		if h.data != nil && h.up() && s.hasQuorum(h.data) {
			return h.data
		}
	}
	return nil
}

// apiUp reports whether the cluster's API server answers.
func (s *simulation) apiUp(c *etcd) bool {
	return c != nil && s.hasQuorum(c) && slices.ContainsFunc(s.sortedHosts(), func(h *host) bool {
		return h.has("c") && h.up() && (h.data == nil || h.data == c)
	})
}

// nodes lets kubelets and the leader of etcd write Nodes, and promotes learners, which needs etcd alone.
func (s *simulation) nodes() {
	c := s.current()
	if c == nil {
		return
	}
	for _, h := range s.sortedHosts() {
		if c.members[h.name] == rollout.MemberLearner && h.up() && h.data == c {
			if h.promoteLeft--; h.promoteLeft <= 0 {
				c.members[h.name] = rollout.MemberVoter
				s.logf("%s votes in etcd", h.name)
			}
		}
	}
	s.removeStalledLearners(c)
	if !s.apiUp(c) {
		return
	}
	for _, h := range s.sortedHosts() {
		n, exists := c.nodes[h.name]
		switch {
		case h.up() && (h.data == nil || h.data == c):
			n.ready, n.silent, n.version, n.etcd = true, 0, versionOf(h.running), n.etcd || h.data == c
			if !n.etcd {
				n.membership = rollout.MemberNone
			}
		case !exists:
			continue
		default:
			if n.silent++; n.silent > 1 {
				n.ready = false
			}
		}
		s.leader(c, h.name, &n)
		c.nodes[h.name] = n
		if s.connected && h.api.version != n.version {
			h.update(func(a *record) { a.version = n.version })
		}
	}
	for name, n := range c.nodes {
		if s.hosts[name] != nil {
			continue
		}
		if n.silent++; n.silent > 1 {
			n.ready = false
		}
		s.leader(c, name, &n)
		c.nodes[name] = n
	}
}

// learnerStallSteps are the minutes for which etcd's leader waits for a learner that makes no progress before it
// removes it (learnerMaxStallTime of k3s).
const learnerStallSteps = 5

func (s *simulation) removeStalledLearners(c *etcd) {
	for name, membership := range c.members {
		h := s.hosts[name]
		if membership != rollout.MemberLearner || h != nil && h.up() && h.data == c {
			delete(c.stalled, name)
			continue
		}
		if c.stalled == nil {
			c.stalled = map[string]int{}
		}
		if c.stalled[name]++; c.stalled[name] > learnerStallSteps {
			delete(c.members, name)
			delete(c.stalled, name)
			if h != nil && h.data == c {
				h.tombstone = true // it learns that at its next start, and joins again
			}
			s.logf("the learner %s makes no progress, and etcd removes it", name)
		}
	}
}

// leader writes what etcd's leader finds of a member, and of a Node that has been one.
func (s *simulation) leader(c *etcd, name string, n *node) {
	membership, member := c.members[name]
	if !n.etcd {
		return
	}
	h := s.hosts[name]
	n.checkedAt = s.now()
	switch {
	case !member:
		n.membership, n.health = rollout.MemberNone, rollout.MemberHealthUnknown
	case h == nil || !h.up() || h.data != c:
		n.membership, n.health = rollout.MemberUnknown, rollout.MemberUnhealthy
	case membership == rollout.MemberVoter:
		n.membership, n.health = membership, rollout.MemberHealthy
	default:
		n.membership, n.health = membership, rollout.MemberHealthUnknown
	}
}

func (s *simulation) orphanedMembers() (orphaned []rollout.Member) {
	c := s.current()
	if !s.connected || c == nil {
		return nil
	}
	for name, n := range c.nodes {
		if s.hosts[name] == nil && n.etcd && n.membership != rollout.MemberNone {
			state := rollout.NodeReady
			if !n.ready {
				state = rollout.NodeLost
			}
			orphaned = append(orphaned, rollout.Member{Node: name, State: state, Membership: n.membership, Health: n.health, CheckedAt: n.checkedAt})
		}
	}
	slices.SortFunc(orphaned, func(a, b rollout.Member) int { return strings.Compare(a.Node, b.Node) })
	return orphaned
}

// machine is the state of a machine, from its record and its Node in a cluster that works, nil for none.
func (s *simulation) machine(h *host, a *record, c *etcd) rollout.Machine {
	m := rollout.Machine{Name: h.name, Etcd: h.has("e"), ControlPlane: h.has("c"), Worker: h.has("w"), Deleting: a.deleting,
		HasPlanSecret: true, Init: a.init, Drain: a.drain, JoinURL: a.joinURL, JoinedTo: a.joinedTo, Progress: a.state,
		CheckedIn: a.checkedIn, ProbesPassed: a.probesPassed, Version: a.version, WantVersion: versionOf(s.version), Removal: a.removal}
	if m.Server() {
		m.LastSeen = h.lastSeen
	}
	if a.state == rollout.ProgressFailed {
		m.Failure = "An attempt to apply the plan failed"
	}
	if a.delivered != nil {
		if a.state != rollout.ProgressApplied {
			m.Underway = rollout.ChangeFirst
			if a.applied != nil {
				m.Underway = rollout.Worst(s.rules.change(*a.applied, *a.delivered), a.replaced)
			}
		}
		m.Unhealthy = a.failing
		if !a.probed {
			m.HealthUnknown = []string{"etcd", "kubelet"}
		}
		if m.Etcd {
			m.EtcdProbe = etcdProbe(a)
		}
	}
	if !s.connected || c == nil {
		return m
	}
	n, exists := c.nodes[h.name]
	if !exists {
		m.Node, m.Membership = rollout.NodeAbsent, rollout.MemberNone
		return m
	}
	m.Node, m.Version = rollout.NodeReady, n.version
	if !n.ready {
		m.Node = rollout.NodeLost
	}
	m.Membership, m.MemberHealth, m.MemberCheckedAt = rollout.MemberNone, n.health, n.checkedAt
	if n.etcd {
		m.Membership = n.membership
	}
	if n.removing && m.Membership != rollout.MemberNone {
		m.Removal = rollout.RemovalRequested
	}
	return m
}

func etcdProbe(a *record) rollout.ProbeState {
	switch {
	case !a.probed:
		return rollout.ProbeUnknown
	case slices.Contains(a.failing, "etcd"):
		return rollout.ProbeUnhealthy
	}
	return rollout.ProbeHealthy
}

// reports are what the gateway and the agent's probes write. Probes do not run while a plan is applied.
func (s *simulation) reports(h *host) {
	if !h.power || !h.agent {
		return
	}
	h.lastSeen = s.now()
	if h.attempt != nil || h.api.delivered == nil {
		return
	}
	var failing []string
	if !h.up() {
		if h.has("e") {
			failing = append(failing, "etcd")
		}
		failing = append(failing, "kubelet")
	} else if h.has("c") && !s.apiUp(s.current()) {
		failing = []string{"kube-apiserver"}
	}
	passed := h.api.probesPassed || h.api.state == rollout.ProgressApplied && len(failing) == 0
	if !h.api.probed || passed != h.api.probesPassed || !slices.Equal(failing, h.api.failing) {
		h.update(func(a *record) { a.probed, a.probesPassed, a.failing = true, passed, failing })
	}
}

// reconcileDelete removes a machine that is being deleted: first its etcd member, then the machine.
func (s *simulation) reconcileDelete(h *host) {
	if !h.api.deleting {
		return
	}
	if h.deleteLeft--; h.deleteLeft > 0 {
		return
	}
	if h.has("e") && !s.memberRemoved(h) {
		return
	}
	if c := s.current(); s.apiUp(c) {
		delete(c.nodes, h.name)
	}
	delete(s.hosts, h.name)
	s.byName = nil
	s.logf("%s is gone", h.name)
}

// memberRemoved is what hub/controllers/preterminatehook does, and the distribution that it asks.
func (s *simulation) memberRemoved(h *host) bool {
	c, others := s.current(), false
	in := rollout.Inputs{Now: s.now(), OrphanedMembers: s.orphanedMembers()}
	for _, o := range s.sortedHosts() {
		if o.api.restoring != "" {
			return false
		}
		others = others || o != h && o.has("e") && !o.api.deleting
		in.Machines = append(in.Machines, s.machine(o, o.api, c))
	}
	if h.api.removal == "" {
		h.update(func(a *record) { a.removal = rollout.RemovalDue })
		return false
	}
	if !s.connected || c == nil {
		return false
	}
	n, exists := c.nodes[h.name]
	switch {
	case !exists || !n.etcd || n.membership == rollout.MemberNone:
		return true
	case !others:
		return false
	case n.removing:
		if s.apiUp(c) {
			delete(c.members, h.name)
			n.membership, n.removing = rollout.MemberNone, false
			c.nodes[h.name] = n
		}
		return false
	case h.deleteLeft > -15 && h.up() && slices.ContainsFunc(s.sortedHosts(), func(o *host) bool {
		return o.server() && !o.api.deleting && o.api.joinedTo == url(h.name)
	}):
		return false
	}
	if rollout.CheckRemoval(in, h.name) == (rollout.Wait{}) {
		n.removing = true
		c.nodes[h.name] = n
		s.logf("%s is to leave etcd", h.name)
	}
	return false
}
