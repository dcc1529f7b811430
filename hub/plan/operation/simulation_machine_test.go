package operation

import (
	"maps"
	"slices"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// The parts of an attempt at a plan, in their order.
const (
	partFiles = iota
	partInstall
	partTask
	partAwait
)

// awaitSteps is how long an instruction waits for the distribution, at most.
const awaitSteps = 8

// agentStep takes, applies and reports plans. Another plan that is delivered meanwhile is taken afterwards.
func (s *simulation) agentStep(h *host) {
	if !h.power || !h.agent {
		return
	}
	if h.api.state == rollout.ProgressFailed && h.api.delivered.task != TaskRestoreSnapshot && h.attempt == nil {
		if h.retryIn--; h.retryIn <= 0 {
			h.update(func(a *record) { a.state = rollout.ProgressPending })
		}
	}
	if h.attempt == nil {
		if h.api.state == rollout.ProgressPending {
			h.attempt, h.part, h.left = h.api.delivered, partFiles, 0
			h.update(func(a *record) { a.state, a.checkedIn = rollout.ProgressApplying, true })
		}
		return
	}
	for h.left--; h.attempt != nil && h.left <= 0; h.left-- {
		if !s.attemptStep(h) {
			return
		}
	}
}

// attemptStep goes on with an attempt; false where it has to wait.
func (s *simulation) attemptStep(h *host) bool {
	quick := h.attempt.apart || h.attempt.task == TaskPing || h.attempt.task == TaskStop
	switch h.part {
	case partFiles:
		if h.attempt.stamp.version != 0 || h.attempt.task == TaskStop {
			h.config = h.attempt.configuration
		}
		h.part = partInstall
	case partInstall:
		if !s.install(h) {
			s.finish(h, rollout.ProgressFailed)
			return false
		}
		h.part = partTask
	case partTask:
		if h.attempt.task != "" && h.hangs {
			return false
		}
		s.taskStep(h)
	case partAwait:
		switch {
		case s.awaited(h):
			s.finish(h, rollout.ProgressApplied)
		case h.left < -awaitSteps:
			s.finish(h, rollout.ProgressFailed)
		default:
			return false
		}
	}
	if h.attempt != nil && h.part != partAwait && !quick {
		h.left = s.IntN(3)
	} else if h.attempt != nil {
		h.left = 0
	}
	return true
}

// install runs the installer, which restarts the distribution where the plan asks for it, and does not wait for it.
func (s *simulation) install(h *host) bool {
	p := h.attempt
	if p.task == TaskStart && !p.target && !h.windows() && h.did[p.uid+"/forget"] == 0 {
		s.stopDistribution(h)
		h.did[p.uid+"/forget"]++
		if !s.rules.leaveData {
			h.data, h.tombstone = nil, false
		}
	}
	switch {
	case p.stamp.version == 0 || p.apart:
		return true
	case p.bad && !p.skipStart && p.task != TaskStart:
		return false
	}
	h.version = p.stamp.version
	if p.skipStart {
		return true
	}
	h.enabled = true
	if !h.active {
		s.start(h)
	} else if h.stamp != p.stamp {
		s.restart(h)
	}
	h.stamp = p.stamp
	return true
}

func (s *simulation) start(h *host) { h.active, h.startLeft = true, 1+s.IntN(3) }

// restart restarts the distribution because of a plan.
func (s *simulation) restart(h *host) {
	if h.up() {
		s.checkRestart(h)
		h.restarting = h.data != nil && h.data.members[h.name] == rollout.MemberVoter
	}
	s.start(h)
}

func (s *simulation) stopDistribution(h *host) { h.active, h.enabled = false, false }

// taskStep does the task of an operation. It may hang, or fail before or after its effect.
func (s *simulation) taskStep(h *host) {
	p := h.attempt
	switch {
	case p.task == "":
		s.finish(h, rollout.ProgressApplied)
	case h.fails == 1 || !s.effect(h):
		s.finish(h, rollout.ProgressFailed)
	case h.fails == 2:
		s.finish(h, rollout.ProgressFailed)
	default:
		h.part, h.left = partAwait, 0
	}
}

// effect is what a task does; false where the machine refuses it. A task that is done again does nothing that it has done.
func (s *simulation) effect(h *host) bool {
	p, c := h.attempt, s.current()
	before := h.did[p.uid+"/"+p.step]
	serving := h.up() && c != nil && s.apiUp(c) && (h.data == nil || h.data == c)
	switch p.task {
	case TaskSaveSnapshot:
		if !h.up() || h.data == nil || !s.hasQuorum(h.data) {
			return false
		}
		s.save(h)
	case TaskCheckSnapshot:
		i := slices.IndexFunc(s.operations, func(o *stored) bool { return string(o.api.GetUID()) == p.uid })
		if i < 0 {
			return false
		}
		op := s.operations[i].api.(*operationv1.ETCDSnapshotRestore)
		if f := s.file(op.Status.Snapshot.Name); f != nil && !f.there {
			return false
		}
	case TaskDeleteSnapshot:
		if !s.deleteFile(h) {
			return false
		}
	case TaskRotateCertificates:
		if before == 0 {
			s.restart(h)
		}
	case TaskRestartServer:
		s.restart(h)
	case TaskStop:
		s.stopDistribution(h)
		h.tombstone = h.tombstone || !p.target && h.data != nil && !s.rules.leaveData
	case TaskRestoreSnapshot:
		return s.restoreSnapshot(h)
	case TaskStart:
		if h.windows() {
			break // it was not stopped
		}
		if h.enabled = true; !h.active {
			s.start(h)
		}
	case TaskRotateToken:
		if !serving || p.newToken == 0 {
			return false
		}
		c.token = p.newToken
	case TaskRotateKeys:
		if before == 0 && (!serving || !s.sameKeys(c)) {
			return false
		}
		if before == 0 {
			c.key++
			c.written, h.key = c.key, c.key
		}
	case TaskPrepareKey:
		if !serving || before == 0 && !s.sameKeys(c) {
			return false
		}
		if before == 0 {
			c.key++
			h.key = c.key
		}
	case TaskRotatePreparedKey:
		if !serving || !s.sameKeys(c) {
			return false
		}
	case TaskReencrypt:
		if !serving || !s.sameKeys(c) {
			return false
		}
		c.written = c.key
	}
	h.did[p.uid+"/"+p.step]++
	return true
}

// awaited reports whether the task has nothing more to wait for.
func (s *simulation) awaited(h *host) bool {
	p := h.attempt
	switch p.task {
	case TaskRotateCertificates, TaskRestartServer, TaskStart:
		return h.up() || h.windows()
	case TaskCheckToken:
		return h.up() && h.token == p.newToken
	case TaskVerifyKeys:
		c := s.current()
		return h.up() && c != nil && s.sameKeys(c) && h.key >= c.written
	}
	return true
}

func (s *simulation) finish(h *host, state rollout.Progress) {
	p := h.attempt
	h.attempt, h.retryIn = nil, 1+s.IntN(5)
	if p != h.api.delivered {
		if h.api.state == rollout.ProgressApplying {
			h.update(func(a *record) { a.state = rollout.ProgressPending })
		}
		return
	}
	if state == rollout.ProgressFailed {
		s.logf("%s: the plan fails", h.name)
	}
	h.update(func(a *record) {
		if a.state = state; state == rollout.ProgressApplied {
			a.applied = p
		}
	})
}

// sameKeys reports whether all servers of a cluster have the same keys.
func (s *simulation) sameKeys(c *etcd) bool {
	for _, h := range s.hosts {
		if _, member := c.nodes[h.name]; member && h.server() && h.key != c.key && (h.data == nil || h.data == c) {
			return false
		}
	}
	return true
}

func (s *simulation) save(h *host) {
	name := "of " + h.attempt.uid
	if !slices.ContainsFunc(s.snapshots, func(o *snapshot) bool { return o.name == name }) {
		s.snapshots = append(s.snapshots, &snapshot{name: name, data: h.data.copy(), token: h.data.token})
		s.addFile(name, h.name, true)
	}
	s.addFile(name+" on "+h.name, h.name, false)
}

// restoreSnapshot makes etcd a cluster of the machine alone. Its data needs the token of the snapshot.
func (s *simulation) restoreSnapshot(h *host) bool {
	p := h.attempt
	h.active = false
	i := slices.IndexFunc(s.operations, func(o *stored) bool { return string(o.api.GetUID()) == p.uid })
	if i < 0 {
		return false
	}
	op := s.operations[i].api.(*operationv1.ETCDSnapshotRestore)
	from := s.snapshot(op.Status.Snapshot.Name)
	if f := s.file(from.name); f != nil && !f.there {
		return false
	}
	if h.config.token != from.token {
		s.fault("%s restores a snapshot of the token %d with the token %d", h.name, from.token, h.config.token)
		return false
	}
	s.checkRestore(h)
	c := from.data.copy()
	c.members, c.restoredBy = map[string]rollout.Membership{h.name: rollout.MemberVoter}, p.uid
	h.data, h.tombstone = c, false
	h.did[p.uid+"/"+p.step]++
	s.logf("%s restores %s", h.name, from.name)
	return true
}

// startDistribution starts the distribution; one that cannot start tries again.
func (s *simulation) startDistribution(h *host) {
	if !h.power || !h.active || h.startLeft == 0 {
		return
	}
	if h.startLeft--; h.startLeft > 0 {
		return
	}
	if !s.mayStart(h) {
		h.startLeft = 1
		return
	}
	h.token, h.running, h.restarting = h.config.token, h.version, false
	if c := s.current(); h.server() && (h.data != nil || c != nil) {
		if h.data != nil {
			c = h.data
		}
		h.key = c.key
	}
}

// mayStart joins what the machine is to be a part of.
func (s *simulation) mayStart(h *host) bool {
	if h.tombstone {
		h.data, h.tombstone = nil, false
	}
	c := s.current()
	joined := s.hosts[trimURL(h.config.server)]
	switch {
	case !h.server():
		// A server that has not restarted accepts the old token still.
		return s.apiUp(c) && (c.token == h.config.token || slices.ContainsFunc(s.sortedHosts(), func(o *host) bool {
			return o.server() && o.up() && o.token == h.config.token
		}))
	case !h.has("e"):
		return c != nil && s.hasQuorum(c) && c.token == h.config.token
	case h.data != nil:
		_, member := h.data.members[h.name]
		return member && h.data.token == h.config.token
	case h.config.init:
		s.fault("%s starts a second cluster", h.name)
		return false
	case joined == nil || !joined.up() || joined.data == nil && joined.has("e"):
		return false
	}
	if joined.data != nil {
		c = joined.data
	}
	learning := c != nil && slices.Contains(slices.Collect(maps.Values(c.members)), rollout.MemberLearner)
	if c == nil || learning || !s.hasQuorum(c) || c.token != h.config.token {
		return false
	}
	// A member of the same name, whose data is gone, is replaced.
	c.members[h.name] = rollout.MemberLearner
	h.data, h.promoteLeft = c, 1+s.IntN(3)
	s.logf("%s joins etcd as a learner", h.name)
	return true
}

func trimURL(address string) string { return address[min(len(address), len("https://")):] }
