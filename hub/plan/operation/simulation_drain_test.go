package operation

import "github.com/drover-dev/drover/hub/plan/rollout"

// nodeOf is the Node of a machine in the cluster that works; empty for none.
func (s *simulation) nodeOf(h *host) node {
	if c := s.current(); c != nil {
		return c.nodes[h.name]
	}
	return node{}
}

// drainNodes is what hub/controllers/nodedrain and nodesync do: they drain Nodes, uncordon them at the end of a drain, and uncordon those
// of a restored snapshot that no drain has cordoned.
func (s *simulation) drainNodes() {
	c := s.current()
	if !s.connected || c == nil || s.paused {
		return
	}
	for _, h := range s.sortedHosts() {
		n, exists := c.nodes[h.name]
		d := h.api.drain
		if h.api.deleting {
			d = rollout.Drain{}
		}
		switch end := d.Uncordon == d.Requested; {
		case d.Requested == "":
			n.cordoned, h.drainLeft = false, 0
		case !end && d.Done == d.Requested:
			continue
		case h.drainLeft == 0:
			h.drainLeft, n.cordoned = 1+s.IntN(4), n.cordoned || !end
		case h.drainLeft > 1:
			h.drainLeft--
		case end:
			n.cordoned, h.drainLeft, d = false, 0, rollout.Drain{}
		default:
			h.drainLeft, d.Done = 0, d.Requested
		}
		if exists {
			c.nodes[h.name] = n
		}
		if d != h.api.drain {
			h.update(func(a *record) { a.drain = d })
		}
	}
}

// checkDrained checks that a machine was drained before a change that its workloads may notice. One that has not joined yet has none, and
// with one machine there is no other Node for them.
func (s *simulation) checkDrained(v *view) {
	remaining := 0
	for _, h := range s.hosts {
		// One that the hub does not know to have joined has no Node for them either.
		if !h.api.deleting && h.api.applied != nil && h.cached.applied != nil && h.cached.version != "" {
			remaining++
		}
	}
	if v.state.Change == rollout.ChangeDrain && s.drains && v.state.Node == rollout.NodeReady && v.read.applied != nil && remaining > 1 &&
		!s.nodeOf(v.host).cordoned {
		s.fault("%s is changed without a drain", v.host.name)
	}
}
