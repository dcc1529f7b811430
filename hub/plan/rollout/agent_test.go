package rollout

import (
	"maps"
	"slices"
	"strings"
)

// agentStep takes, applies and reports plans.
func (w *world) agentStep(h *host) {
	if !h.power || !h.agent {
		return
	}
	if h.state == ProgressFailed {
		if h.retryLeft--; h.retryLeft <= 0 && w.rand != nil {
			h.state = ProgressPending
		}
	}
	if h.work == nil {
		if h.state == ProgressPending {
			h.work, h.workLeft, h.state, h.checkedIn = h.delivered, w.steps(3), ProgressApplying, true
		}
		return
	}
	if h.workLeft--; h.workLeft > 0 {
		return
	}
	if h.workLeft == 0 && !w.install(h) {
		w.finish(h, ProgressFailed)
		return
	}
	// The installer waits until the distribution is up, but not for ever.
	if h.up() {
		w.finish(h, ProgressApplied)
	} else if h.stopped || h.workLeft < -20 {
		w.finish(h, ProgressFailed)
	}
}

// install runs the installer, which restarts the distribution where the plan asks for it.
func (w *world) install(h *host) bool {
	if h.work.Bad == "install" {
		return false
	}
	before := h.runs
	h.runs = h.work
	if before != nil && !between(*before, *h.work).Disruptive() && !h.stopped {
		return true
	}
	if before != nil && h.up() {
		w.checkRestart(h, *before)
		w.checkEtcdRestart(h)
		h.restarting = w.etcd[h.name] == MemberVoter
	}
	h.startLeft, h.ill, h.stopped = w.steps(3), false, h.work.Bad == "start"
	if h.stopped {
		h.downSince = w.step
	}
	return true
}

func (w *world) finish(h *host, state Progress) {
	if h.work == h.delivered {
		h.state, h.retryLeft, h.taken = state, w.steps(6), false
		if state == ProgressApplied {
			h.applied = h.delivered
		} else {
			w.say("%s: the plan fails", h.name)
		}
	} else if h.state != ProgressPending {
		h.state = ProgressPending
	}
	h.work = nil
}

// process starts the distribution.
func (w *world) process(h *host) {
	if !h.power || h.runs == nil || h.startLeft == 0 || h.stopped {
		return
	}
	if h.startLeft--; h.startLeft > 0 {
		return
	}
	if h.has("e") && w.etcd[h.name] == "" && !w.enter(h) || h.nodeInfo == "" && !h.runs.Init && !w.serverUp(h.runs.Server) {
		h.startLeft = 1
		return
	}
}

func (w *world) serverUp(address string) bool {
	h := w.hosts[strings.TrimPrefix(address, "https://")]
	return h != nil && h.up()
}

// enter makes a host a member of etcd: of a new one if it was told to start one.
func (w *world) enter(h *host) bool {
	if h.asked {
		// A removed member does not come back.
		return false
	}
	if h.runs.Init {
		if h.deleting && len(w.etcd) > 0 {
			// Another machine was told to start the cluster meanwhile: this one starts one of its own, which goes with it.
			return true
		}
		w.clusters++
		if w.established {
			w.fault("%s starts a second cluster", h.name)
		}
		w.etcd = map[string]Membership{h.name: MemberVoter}
		w.say("%s starts the cluster", h.name)
		return true
	}
	learning := slices.Contains(slices.Collect(maps.Values(w.etcd)), MemberLearner)
	if learning || !w.quorate() || !w.serverUp(h.runs.Server) {
		return false
	}
	w.etcd[h.name], h.promoteLeft = MemberLearner, w.steps(3)+w.promoteLate
	w.say("%s joins etcd as a learner", h.name)
	return true
}
