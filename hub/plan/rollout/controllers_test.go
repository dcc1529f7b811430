package rollout

import "slices"

// kubelet keeps the Node, and etcd's promotion of learners.
func (w *world) kubelet(h *host) {
	if w.etcd[h.name] == MemberLearner && h.up() && w.quorate() {
		if h.promoteLeft--; h.promoteLeft <= 0 {
			w.etcd[h.name] = MemberVoter
			w.say("%s votes in etcd", h.name)
		}
	}
	if !w.serves() {
		return
	}
	if h.up() && !h.noKubelet {
		h.node, h.ready, h.silentFor, h.nodeInfo = true, !h.noNetwork, 0, version(h.runs.Version)
	} else if h.silentFor++; h.silentFor > 1 {
		h.ready = false
	}
	w.leader(h)
}

// leader is etcd's leader, which asks the members and has the answers written on their Nodes.
func (w *world) leader(h *host) {
	membership, is := w.etcd[h.name]
	if !h.node || !h.has("e") {
		return
	}
	h.checkedAt = w.now()
	switch {
	case !is:
		h.membership, h.health = MemberNone, MemberHealthUnknown
	case !h.up() && !w.asksNobody:
		h.membership, h.health = MemberUnknown, MemberUnhealthy
	case membership == MemberVoter:
		h.membership, h.health = membership, MemberHealthy
	default:
		h.membership, h.health = membership, MemberHealthUnknown
	}
}

// etcdProbe is what the agent has last said of etcd. On k3s that is what it says of the whole process.
func (w *world) etcdProbe(h *host) ProbeState {
	probes := []string{probeEtcd, probeKubelet}
	switch {
	case !h.has("e") || w.k3s && !h.has("c"):
		return ProbeNone
	case !h.probed:
		return ProbeUnknown
	case w.k3s:
		probes = probes[1:]
	}
	if slices.Contains(h.failing, probes[0]) {
		return ProbeUnhealthy
	}
	return ProbeHealthy
}

func (w *world) probe(h *host) {
	if h.power && h.agent {
		h.lastSeen = w.now()
	}
	if !h.power || !h.agent || h.runs == nil || h.delivered == nil {
		return
	}
	h.probed, h.failing = true, nil
	if !h.up() {
		if h.has("e") {
			h.failing = append(h.failing, probeEtcd)
		}
		h.failing = append(h.failing, probeKubelet)
	} else if h.has("c") && !w.quorate() {
		h.failing = []string{probeAPIServer}
	} else if h.ill {
		h.failing = []string{"kube-scheduler"}
	}
	if h.state == ProgressApplied && len(h.failing) == 0 {
		h.probesPassed = true
	}
}

// drainer is the drain controller with its hooks.
func (w *world) drainer(h *host) {
	if h.deleting {
		h.drain = Drain{}
		return
	}
	if h.drain.Requested == "" || !w.connected {
		h.drainLeft = 0
		return
	}
	end := h.drain.Uncordon == h.drain.Requested
	if !end && h.drain.Done == h.drain.Requested {
		return
	}
	if h.drainLeft == 0 {
		h.drainLeft = w.steps(4) + w.hookLate
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
		w.say("%s is taken back", h.name)
		return
	}
	h.drain.Done = h.drain.Requested
	w.say("%s is drained", h.name)
}

// leave is what Cluster API does to a machine that is being deleted, and what removes its member from etcd.
func (w *world) leave(h *host) {
	if !h.deleting {
		return
	}
	if h.deleteLeft--; h.deleteLeft > 0 {
		return
	}
	if h.has("e") && h.node && w.etcd[h.name] != "" {
		h.removal = RemovalDue
		if h.deleteLeft > -40 && h.up() && slices.ContainsFunc(w.sorted(), func(o *host) bool {
			return o.server() && !o.deleting &&
				o.joinedTo == url(h.name)
		}) {
			w.note(h.name+" leaves", "others have joined the cluster at it, which are given another address first")
			return
		}
		if !h.asked {
			if wait := w.remove(w.inputs(), h.name); wait != (Wait{}) {
				w.note(h.name+" leaves", wait.Message)
				return
			}
			h.asked = true
			w.checkRemoval(h)
			w.say("%s: etcd is asked to remove it", h.name)
			return
		}
		if !w.serves() {
			return
		}
		delete(w.etcd, h.name)
		w.say("%s is no member of etcd any more", h.name)
	}
	if h.has("e") && !h.node {
		// A machine that never came up has no Node and, for all that anybody can know, no member.
		delete(w.etcd, h.name)
	}
	delete(w.hosts, h.name)
	w.say("%s is gone", h.name)
}
