package rollout

import "slices"

// kubelet updates the Node, and promotes learners of etcd.
func (s *simulation) kubelet(h *host) {
	if s.etcd[h.name] == MemberLearner && h.up() && s.hasQuorum() {
		if h.promoteLeft--; h.promoteLeft <= 0 {
			s.etcd[h.name] = MemberVoter
			s.recordEvent("%s votes in etcd", h.name)
		}
	}
	if !s.apiServerUp() {
		return
	}
	if h.up() && !h.noKubelet {
		h.node, h.ready, h.notReadyFor, h.nodeInfo = true, !h.noNetwork, 0, version(h.running.Version)
	} else if h.notReadyFor++; h.notReadyFor > 1 {
		h.ready = false
	}
	s.etcdLeader(h)
}

// etcdLeader checks the member and writes the result to its Node.
func (s *simulation) etcdLeader(h *host) {
	membership, isMember := s.etcd[h.name]
	if !h.node || !h.has("e") {
		return
	}
	h.checkedAt = s.now()
	switch {
	case !isMember:
		h.membership, h.health = MemberNone, MemberHealthUnknown
	case !h.up() && !s.noMemberHealth:
		h.membership, h.health = MemberUnknown, MemberUnhealthy
	case membership == MemberVoter:
		h.membership, h.health = membership, MemberHealthy
	default:
		h.membership, h.health = membership, MemberHealthUnknown
	}
}

// etcdProbe is the agent's last report on etcd; on k3s, the one on the whole process.
func (s *simulation) etcdProbe(h *host) ProbeState {
	probes := []string{probeEtcd, probeKubelet}
	switch {
	case !h.has("e") || s.k3s && !h.has("c"):
		return ProbeNone
	case !h.probed:
		return ProbeUnknown
	case s.k3s:
		probes = probes[1:]
	}
	if slices.Contains(h.failing, probes[0]) {
		return ProbeUnhealthy
	}
	return ProbeHealthy
}

func (s *simulation) runProbes(h *host) {
	if h.power && h.agent {
		h.lastSeen = s.now()
	}
	if !h.power || !h.agent || h.running == nil || h.delivered == nil {
		return
	}
	h.probed, h.failing = true, nil
	if !h.up() {
		if h.has("e") {
			h.failing = append(h.failing, probeEtcd)
		}
		h.failing = append(h.failing, probeKubelet)
	} else if h.has("c") && !s.hasQuorum() {
		h.failing = []string{probeAPIServer}
	} else if h.unhealthy {
		h.failing = []string{"kube-scheduler"}
	}
	if h.state == ProgressApplied && len(h.failing) == 0 {
		h.probesPassed = true
	}
}

// drainController drains and uncordons the Node, with hooks.
func (s *simulation) drainController(h *host) {
	if h.deleting {
		h.drain = Drain{}
		return
	}
	if h.drain.Requested == "" || !s.connected {
		h.drainLeft = 0
		return
	}
	end := h.drain.Uncordon == h.drain.Requested
	if !end && h.drain.Done == h.drain.Requested {
		return
	}
	if h.drainLeft == 0 {
		h.drainLeft = s.duration(4) + s.hookDelay
		if !end && h.drain.Requested == "drain" {
			h.cordoned = true
		}
		return
	}
	if h.drainLeft--; h.drainLeft > 0 {
		return
	}
	if end {
		h.cordoned, h.drain = false, Drain{}
		s.recordEvent("%s is uncordoned", h.name)
		return
	}
	h.drain.Done = h.drain.Requested
	s.recordEvent("%s is drained", h.name)
}

// reconcileDelete removes a deleted machine: first its etcd member, then the machine.
func (s *simulation) reconcileDelete(h *host) {
	if !h.deleting {
		return
	}
	if h.deleteLeft--; h.deleteLeft > 0 {
		return
	}
	if h.has("e") && h.node && s.etcd[h.name] != "" {
		h.removal = RemovalDue
		if h.deleteLeft > -40 && h.up() && slices.ContainsFunc(s.sortedHosts(), func(o *host) bool {
			return o.server() && !o.deleting &&
				o.joinedTo == url(h.name)
		}) {
			s.recordOnce("removal of "+h.name, "machines that joined through it get another server first")
			return
		}
		if !h.removalRequested {
			if wait := s.remove(s.inputs(), h.name); wait != (Wait{}) {
				s.recordOnce("removal of "+h.name, wait.Message)
				return
			}
			h.removalRequested = true
			s.checkRemoval(h)
			s.recordEvent("%s: etcd is asked to remove it", h.name)
			return
		}
		if !s.apiServerUp() {
			return
		}
		delete(s.etcd, h.name)
		s.recordEvent("%s is no member of etcd any more", h.name)
	}
	if h.has("e") && !h.node {
		// A machine that never came up has no Node and, for all that anybody can know, no member.
		delete(s.etcd, h.name)
	}
	s.removeHost(h.name)
	s.recordEvent("%s is gone", h.name)
}
