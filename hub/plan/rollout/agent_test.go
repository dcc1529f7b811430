package rollout

import (
	"maps"
	"slices"
	"strings"
)

// agentStep takes, applies and reports plans.
func (s *simulation) agentStep(h *host) {
	if !h.power || !h.agent {
		return
	}
	if h.state == ProgressFailed {
		if h.retryLeft--; h.retryLeft <= 0 && s.rand != nil {
			h.state = ProgressPending
		}
	}
	if h.attempt == nil {
		if h.state == ProgressPending {
			h.attempt, h.attemptLeft, h.state, h.checkedIn = h.delivered, s.duration(3), ProgressApplying, true
		}
		return
	}
	if h.attemptLeft--; h.attemptLeft > 0 {
		return
	}
	if h.attemptLeft == 0 && !s.install(h) {
		s.finishPlan(h, ProgressFailed)
		return
	}
	// The installer waits until the distribution is up, but not for ever.
	if h.up() {
		s.finishPlan(h, ProgressApplied)
	} else if h.stopped || h.attemptLeft < -20 {
		s.finishPlan(h, ProgressFailed)
	}
}

// install runs the installer, which restarts the distribution where the plan asks for it.
func (s *simulation) install(h *host) bool {
	if h.attempt.Bad == "install" {
		return false
	}
	before := h.running
	h.running = h.attempt
	if before != nil && !changeBetween(*before, *h.attempt).Disruptive() && !h.stopped {
		return true
	}
	if before != nil && h.up() {
		s.checkRestart(h, *before)
		s.checkEtcdRestart(h)
		h.restarting = s.etcd[h.name] == MemberVoter
	}
	h.startLeft, h.unhealthy, h.stopped = s.duration(3), false, h.attempt.Bad == "start"
	if h.stopped {
		h.downSince = s.step
	}
	return true
}

func (s *simulation) finishPlan(h *host, state Progress) {
	if h.attempt == h.delivered {
		h.state, h.retryLeft, h.changing = state, s.duration(6), false
		if state == ProgressApplied {
			h.applied = h.delivered
		} else {
			s.recordEvent("%s: the plan fails", h.name)
		}
	} else if h.state != ProgressPending {
		h.state = ProgressPending
	}
	h.attempt = nil
}

// startDistribution starts what was installed; a server that cannot join tries again.
func (s *simulation) startDistribution(h *host) {
	if !h.power || h.running == nil || h.startLeft == 0 || h.stopped {
		return
	}
	if h.startLeft--; h.startLeft > 0 {
		return
	}
	if h.has("e") && s.etcd[h.name] == "" && !s.joinEtcd(h) || h.nodeInfo == "" && !h.running.Init && !s.serverUp(h.running.Server) {
		h.startLeft = 1
		return
	}
}

func (s *simulation) serverUp(address string) bool {
	h := s.hosts[strings.TrimPrefix(address, "https://")]
	return h != nil && h.up()
}

// joinEtcd makes a host a member of etcd; the init node starts a new etcd.
func (s *simulation) joinEtcd(h *host) bool {
	if h.removalRequested {
		// A removed member does not come back.
		return false
	}
	if h.running.Init {
		if h.deleting && len(s.etcd) > 0 {
			// Another machine is the init node meanwhile: this one starts a cluster of its own, which is deleted with it.
			return true
		}
		s.clusters++
		if s.established {
			s.fault("%s starts a second cluster", h.name)
		}
		s.etcd = map[string]Membership{h.name: MemberVoter}
		s.recordEvent("%s starts the cluster", h.name)
		return true
	}
	learning := slices.Contains(slices.Collect(maps.Values(s.etcd)), MemberLearner)
	if learning || !s.hasQuorum() || !s.serverUp(h.running.Server) {
		return false
	}
	s.etcd[h.name], h.promoteLeft = MemberLearner, s.duration(3)+s.promoteDelay
	s.recordEvent("%s joins etcd as a learner", h.name)
	return true
}
