package operation

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

const (
	// detectionDelay is the number of steps after which everybody can see that a host is down.
	detectionDelay = 18
	// longestStep is how long an operation may stay as it is, while the hub runs and nobody pauses it.
	longestStep = time.Hour + 2*time.Minute
)

// restoring reports whether machines are stopped, or may be, for a restore.
func (s *simulation) restoring() bool {
	return slices.ContainsFunc(s.operations, func(o *stored) bool { return Exclusive(o.api) }) ||
		slices.ContainsFunc(s.sortedHosts(), func(h *host) bool { return h.api.delivered != nil && h.api.delivered.stopped() && !h.api.deleting })
}

// checkStatus checks what was written of an operation.
func (s *simulation) checkStatus(o *stored, before operationv1.Operation) {
	old, status := before.CommonStatus(), o.status()
	name := fmt.Sprintf("%s %s", operationv1.Kind(o.api), o.api.GetName())
	c := conditions.Get(o.api, operationv1.SucceededCondition)
	if c == nil || c.Reason == "" {
		s.fault("%s has no reason", name)
		return
	}
	if old.Phase != status.Phase || old.Step != status.Step {
		s.logf("%s: %s %s: %s: %s", name, status.Phase, status.Step, c.Reason, c.Message)
	}
	if old.Phase.Ended() && !reflect.DeepEqual(old, status) {
		s.fault("%s has ended, and its status changes", name)
	}
	s.checkInUse(o, old)
	for _, m := range status.Machines {
		had := slices.ContainsFunc(old.Machines, func(was operationv1.MachineStatus) bool { return was == m })
		if h := s.hosts[m.Name]; !had && m.Phase == operationv1.PhaseSucceeded && h != nil && !h.api.deleting {
			s.checkDone(o, h, old.Step)
		}
	}
	switch {
	case status.Phase == operationv1.PhaseInProgress && old.Phase != operationv1.PhaseInProgress:
		o.keyBefore = 0
		if c := s.current(); c != nil {
			o.keyBefore = c.written
		}
		for _, other := range s.operations {
			if other != o && other.status().Phase == operationv1.PhaseInProgress {
				s.fault("%s begins while %s is in progress", name, other.api.GetName())
			}
		}
		if _, restore := o.api.(*operationv1.ETCDSnapshotRestore); !restore && s.restoring() {
			s.fault("%s begins while machines are stopped", name)
		}
	case status.Phase.Ended():
		s.ended[status.Phase]++
		s.endedOfKind[operationv1.Kind(o.api)+" "+string(status.Phase)]++
		if status.TerminatedAt == nil || status.Step != "" || c.Status == "Unknown" {
			s.fault("%s has ended with the status %+v", name, *status)
		}
		if o.faultless && status.Phase != operationv1.PhaseSucceeded {
			s.fault("%s ends without a fault in %s: %s, %+v", name, status.Phase, c.Message, status.Machines)
		}
		_, token := o.api.(*operationv1.TokenRotation)
		if c := s.current(); token && c != nil && status.Phase == operationv1.PhaseCanceled && c.token != s.tokens.server &&
			c.token == s.tokens.next && old.Step == operationv1.StepRotateToken && old.Leader != "" && s.tokenTaken(o, old.Leader) {
			s.fault("%s was canceled, and the hub does not have the token %d that %s has", name, c.token, old.Leader)
		}
		if status.Phase == operationv1.PhaseSucceeded {
			s.checkSucceeded(o, name)
		}
	}
}

// tokenTaken reports whether a machine has taken a new token, and the hub can see that it has the task.
func (s *simulation) tokenTaken(o *stored, leader string) bool {
	h := s.hosts[leader]
	return h != nil && h.cached.delivered != nil && h.cached.delivered.uid == string(o.api.GetUID()) && !h.cached.deleting
}

// checkDone checks that a machine has done what counts as done.
func (s *simulation) checkDone(o *stored, h *host, name string) {
	if h.did[string(o.api.GetUID())+"/"+name] == 0 {
		s.fault("%s counts as done on %s, which has not done it", name, h.name)
	}
	e := newEngine(o.api, Inputs{})
	i := slices.IndexFunc(e.kind.steps, func(k step) bool { return k.name == name })
	if i >= 0 && (e.kind.steps[i].inTurn || e.kind.steps[i].healthy) && !h.up() && h.power && h.attempt == nil && h.restarting {
		s.fault("%s counts as done on %s, which is not up", name, h.name)
	}
}

// checkSucceeded checks that an operation that has succeeded has done what it is for.
func (s *simulation) checkSucceeded(o *stored, name string) {
	c := s.current()
	if c == nil { // the last of two members to restart may be deleted meanwhile
		return
	}
	for _, h := range s.sortedHosts() {
		if !h.server() || !h.up() || h.api.deleting || h.data != nil && h.data != c || h.attempt != nil {
			continue
		}
		switch o.api.(type) {
		case *operationv1.EncryptionKeyRotation:
			if h.key < c.written || c.written <= o.keyBefore {
				s.fault("%s has succeeded; %s has the key %d, Secrets are written with %d, and were with %d", name, h.name, h.key, c.written,
					o.keyBefore)
			}
		case *operationv1.TokenRotation:
			if c.token != s.tokens.server || h.token != c.token {
				s.fault("%s has succeeded; %s has the token %d, the data %d, the hub %d", name, h.name, h.token, c.token, s.tokens.server)
			}
		}
	}
	if op, is := o.api.(*operationv1.ETCDSnapshotDelete); is {
		s.checkDeleted(op)
	}
	if _, is := o.api.(*operationv1.ETCDSnapshotRestore); is && c.restoredBy != string(o.api.GetUID()) {
		s.fault("%s has succeeded, and the cluster is that of %q", name, c.restoredBy)
	}
}

// checkDelivery checks the rules for a plan that is delivered.
func (s *simulation) checkDelivery(v *view) {
	h, p, old := v.host, v.plan, v.read.delivered
	given := p.uid != "" && (old == nil || old.uid != p.uid || old.step != p.step)
	if given {
		i := slices.IndexFunc(s.operations, func(o *stored) bool { return string(o.api.GetUID()) == p.uid })
		if i < 0 || s.operations[i].status().Phase != operationv1.PhaseInProgress || s.operations[i].status().Step != p.step {
			s.fault("%s is given a task of the step %s, in which no operation is", h.name, p.step)
		} else if o := s.operations[i]; o.api.CommonSpec().Paused && o.cached.CommonSpec().Paused {
			s.fault("%s is given a task of %s, which is paused", h.name, o.api.GetName())
		} else if o.cached.CommonSpec().Cancel && p.task != TaskConfigureToken {
			s.fault("%s is given a task of %s, which is canceled", h.name, o.api.GetName())
		}
	}
	for _, o := range s.operations {
		if o.cached == nil || o.status().Phase != operationv1.PhaseInProgress || o.status().Phase != o.cached.CommonStatus().Phase {
			continue
		}
		if given && p.uid == string(o.api.GetUID()) {
			continue
		}
		if v.state.Change.Disruptive() || Exclusive(o.api) {
			s.fault("%s gets a change (%s) while %s is in progress", h.name, v.state.Change, o.api.GetName())
		}
	}
	if s.restoring() && p.uid == "" {
		s.fault("%s gets a change while machines are stopped", h.name)
	}
	if v.state.Change.Disruptive() && !v.state.Regardless && !s.restoring() {
		s.checkDisruption(v)
		if h.up() {
			h.changing, h.changedAt = true, s.step
		}
	}
}

// downForChange reports whether the hub has begun to change a host, and that has not ended.
func (h *host) downForChange() bool {
	return h.changing && (h.attempt != nil || h.api.state != rollout.ProgressApplied || !h.up())
}

// checkDisruption checks a change that restarts a machine.
func (s *simulation) checkDisruption(v *view) {
	h := v.host
	if !h.up() || h.downForChange() {
		return
	}
	groupOf := func(o *host) string {
		switch {
		case o.has("e"):
			return "etcd"
		case o.has("c"):
			return "control plane"
		}
		return "worker"
	}
	s.checkDrained(v)
	if s.tokens.next != 0 && h.server() && v.plan.uid == "" && v.read.applied != nil {
		s.fault("%s restarts while it is not known which token the data is encrypted with", h.name)
	}
	size, down := 0, 0
	for _, o := range s.sortedHosts() {
		if o.api.deleting || groupOf(o) != groupOf(h) {
			continue
		}
		size++
		if o != h && o.downForChange() && o.power && o.api.applied != nil {
			down++
		}
		// The restart of a learner takes nothing away; a machine may be given one while it joins.
		if o != h && h.votes() && o.votes() && o.power && !o.api.deleting && (o.attempt != nil && o.restartDue() || o.restarting && !o.up()) {
			s.fault("%s is changed while %s restarts, or may at any moment", h.name, o.name)
		}
	}
	limit := 1
	switch groupOf(h) {
	case "control plane":
		limit = unavailable(s.controlPlane, size)
	case "worker":
		limit = unavailable(s.worker, size)
	}
	// One that is not available itself takes nothing away.
	if down >= limit && v.state.Node == rollout.NodeReady && v.state.Working() && len(v.state.Unhealthy) == 0 {
		s.fault("%s is changed while %d of %d %ss are, want at most %d", h.name, down, size, groupOf(h), limit)
	}
}

// votes reports whether a machine is a voting member of its etcd.
func (h *host) votes() bool {
	return h.data != nil && h.data.members[h.name] == rollout.MemberVoter
}

// restartDue reports whether the plan that an agent applies restarts etcd.
func (h *host) restartDue() bool {
	p := h.attempt
	return h.has("e") && h.up() && (p.restarts() && h.did[p.uid+"/"+p.step] == 0 || p.stamp.version != 0 && !p.apart && !p.skipStart &&
		p.stamp != h.stamp)
}

func unavailable(concurrency string, size int) int {
	text, percent := strings.CutSuffix(concurrency, "%")
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return 1
	case n == 0:
		return size
	case percent:
		return (size*n + 99) / 100
	}
	return n
}

// checkRestart checks the restart of a healthy member of etcd: no other may be down for a change, and etcd must keep its quorum, unless it
// has too few members for that.
func (s *simulation) checkRestart(h *host) {
	c := h.data
	if c == nil || c.members[h.name] != rollout.MemberVoter || s.restoring() {
		return
	}
	voters, up := s.voters(c, nil)
	excused, quorum := len(voters) <= 2, len(voters)/2+1
	for _, name := range voters {
		o := s.hosts[name]
		if o == h {
			continue
		}
		if o == nil || o.api.deleting && !o.up() {
			// A machine that is being deleted is not verified again.
			excused = true
			continue
		}
		// A new machine counts once it has applied a plan: before that it restarts as often as it needs to join.
		if o.restarting && !o.up() && o.power && !o.api.deleting && h.api.applied != nil && o.api.applied != nil {
			s.fault("%s restarts while %s restarts for a change", h.name, name)
		}
		// Nobody could know of what went down shortly before the delivery, or after it.
		excused = excused || (!o.up() || o.data != c) && o.downSince+detectionDelay > h.changedAt
	}
	if !excused && up >= quorum && up-1 < quorum {
		s.fault("%s restarts and takes etcd's quorum: %d of %d voters were up", h.name, up, len(voters))
	}
}

// checkRestore checks that nothing of the old cluster runs when another one is made of its machines.
func (s *simulation) checkRestore(h *host) {
	for _, o := range s.sortedHosts() {
		if o != h && o.server() && !o.api.deleting && o.up() && o.api.delivered != nil {
			s.fault("a snapshot is restored on %s while %s runs", h.name, o.name)
		}
	}
}

// check checks what must be true at any moment.
func (s *simulation) check() {
	var working []*etcd
	for _, h := range s.sortedHosts() {
		if h.changing && h.attempt == nil && (h.api.state == rollout.ProgressApplied && h.up() || h.api.state == rollout.ProgressFailed) {
			h.changing = false
		}
		if h.up() || !h.power {
			h.restarting = false
		}
		if h.data != nil && h.up() && !slices.Contains(working, h.data) && s.hasQuorum(h.data) {
			working = append(working, h.data)
		}
	}
	if len(working) > 1 {
		s.fault("two clusters run")
	}
	for _, o := range s.operations {
		status := o.status()
		if status.Phase != operationv1.PhaseInProgress || o.api.CommonSpec().Paused || s.paused || status.LastUpdated == nil {
			continue
		}
		since := status.LastUpdated.Time
		for _, at := range []time.Time{s.started, s.unpausedAt} {
			if at.After(since) {
				since = at
			}
		}
		if p := conditions.Get(o.api, operationv1.PausedCondition); p != nil && p.LastTransitionTime.After(since) {
			since = p.LastTransitionTime.Time
		}
		if s.now().Sub(since) > longestStep {
			s.fault("%s stands still in %s since %s", o.api.GetName(), status.Step, since.Format(time.TimeOnly))
		}
	}
}

// checkFinalState checks a cluster that has converged.
func (s *simulation) checkFinalState() {
	c := s.current()
	if c == nil {
		s.fault("the cluster does not work")
		return
	}
	for _, h := range s.sortedHosts() {
		want := configuration{restarted: s.restarted, token: s.tokens.server, server: h.api.joinedTo, init: h.api.init}
		switch {
		case h.config != want || h.running != s.version || h.token != want.token || h.stamp != (stamp{s.version, want}):
			s.fault("%s runs %+v with the version %d and the token %d, want %+v", h.name, h.config, h.running, h.token, want)
		case h.api.drain != (rollout.Drain{}) || c.nodes[h.name].cordoned:
			s.fault("%s was not uncordoned: %+v", h.name, h.api.drain)
		case h.api.restoring != "":
			s.fault("%s is marked as being restored by %s", h.name, h.api.restoring)
		case h.has("e") && c.members[h.name] != rollout.MemberVoter:
			s.fault("%s is no voter", h.name)
		case h.server() && h.key != c.key || c.token != s.tokens.server:
			s.fault("%s has the key %d of %d; the token is %d of %d", h.name, h.key, c.key, s.tokens.server, c.token)
		}
	}
	s.checkFiles()
	for name := range c.members {
		if s.hosts[name] == nil {
			s.fault("etcd has the member %s, which has no Machine", name)
		}
	}
	if s.paused != s.pausedByUser {
		s.fault("the pause of the Cluster is %v, want %v", s.paused, s.pausedByUser)
	}
}
