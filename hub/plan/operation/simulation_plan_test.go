package operation

import (
	"slices"
	"strings"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/operations"
)

// plan decides. What must not be decided on outdated objects is decided again on live ones.
func (r *reconciliation) plan() bool {
	r.planOnce()
	if !slices.ContainsFunc(r.machines, func(v *view) bool {
		return v.state.Init && !v.read.init || v.decision.Deliver && (v.state.Etcd && v.state.Change != rollout.ChangeMinor ||
			v.state.Task && !r.rules.trustCache)
	}) {
		return true
	}
	if r.live = true; r.stored != nil && r.stored.api != r.observed && !r.rules.trustCache {
		return false // as a conflict: the operation is read again
	}
	r.readMachines()
	r.planOnce()
	return true
}

func (r *reconciliation) planOnce() {
	designated := ""
	if r.operation != nil {
		r.operation = r.observed
		designated = r.rules.target(r.operation)
	}
	for range 2 {
		r.elect(designated)
		r.render()
		r.decideOperation()
		decided := ""
		if r.operation != nil {
			decided = r.rules.target(r.operation)
		}
		if decided == "" || decided == designated {
			break
		}
		designated = decided
	}
	r.outcome = rollout.Decide(r.rolloutInputs())
	for i, v := range r.machines {
		v.decision = r.outcome.Decisions[i]
	}
}

// states are those of the machines; the next call overwrites them.
func (r *reconciliation) states() []rollout.Machine {
	if r.all == nil {
		r.all = make([]rollout.Machine, len(r.machines))
	}
	for i, v := range r.machines {
		r.all[i] = v.state
	}
	return r.all
}

func (r *reconciliation) elect(designated string) {
	r.election = rollout.Election{Init: designated}
	if designated == "" {
		r.election = rollout.Elect(r.states(), "", r.bootstrapped)
	}
	for _, v := range r.machines {
		v.state.Init = v.host.name == r.election.Init
		if v.state.JoinURL == "" && v.state.Server() && v.state.Joinable() {
			v.state.JoinURL = url(v.host.name)
		}
	}
	states := r.states()
	for _, v := range r.machines {
		v.joinURL = rollout.JoinURL(states, v.state, v.host.name)
	}
}

func (r *reconciliation) render() {
	for _, v := range r.machines {
		c := configuration{restarted: r.restarted, token: r.tokens.server, server: v.joinURL, init: v.state.Init}
		v.plan = plan{configuration: c, minor: r.minor, stamp: stamp{r.version, c}, bad: r.badInstall && v.read.applied != nil}
		v.state.Task, v.state.Regardless, v.state.Problem = false, false, ""
		r.setChange(v)
	}
}

func (r *reconciliation) setChange(v *view) {
	if v.read.delivered == nil {
		v.state.Change = rollout.ChangeFirst
		return
	}
	v.state.Change = r.rules.change(*v.read.delivered, v.plan)
}

func (r *reconciliation) decideOperation() {
	if r.operation == nil {
		return
	}
	r.operation, r.deleteNodes, r.deletesSnapshot = operations.Copy(r.observed), nil, false
	if r.refuse(r.operation) {
		return
	}
	status := r.operation.CommonStatus()
	in := Inputs{Now: r.now(), Since: r.started, Bootstrapped: r.bootstrapped, Runtime: r.runtime, Connected: r.connected,
		StrayNodes: r.strayNodes(), Stopped: len(r.stoppedMachines()) > 0, TokenPending: r.tokens.next != 0}
	if r.unpausedAt.After(in.Since) {
		in.Since = r.unpausedAt
	}
	in.Machines = make([]Machine, 0, len(r.machines))
	for _, v := range r.machines {
		p := v.read.delivered
		has := p != nil && p.uid == string(r.operation.GetUID()) && p.step == status.Step
		in.Machines = append(in.Machines, Machine{Machine: v.state, Has: has, Windows: v.host.windows()})
	}
	if op, is := r.operation.(*operationv1.ETCDSnapshotRestore); is {
		in.Snapshot = Snapshot{File: operationv1.RestoredSnapshot{Name: op.Spec.Args.Name, S3: &operationv1.RestoredSnapshotS3{}}}
	}
	if op, is := r.operation.(*operationv1.ETCDSnapshotRestore); is && r.file(op.Spec.Args.Name) != nil && !r.file(op.Spec.Args.Name).known {
		in.Snapshot = Snapshot{Problem: "There is no such ETCDSnapshot"}
	}
	if op, is := r.operation.(*operationv1.ETCDSnapshotDelete); is {
		in.Deletion = r.deletion(op)
	}
	spec := *r.operation.CommonSpec()
	decision := r.rules.decide(r.operation, in)
	if *r.operation.CommonSpec() != spec {
		r.fault("the hub changes the specification of %s", r.operation.GetName())
	}
	r.deleteNodes, r.deletesSnapshot = decision.DeleteNodes, decision.DeleteSnapshot
	ready := r.tokensReady()
	for _, v := range r.machines {
		v.state.LeftOut = decision.LeftOut[v.host.name]
		task, is := decision.Tasks[v.host.name]
		switch {
		case !is || v.state.Deleting:
		case ready:
			r.addTask(v, task)
		case v.read.delivered != nil:
			v.plan = *v.read.delivered
			r.setChange(v)
		}
	}
}

// addTask puts a task into the plan of a machine, as the controller and hub/plan/render do.
func (r *reconciliation) addTask(v *view, task Task) {
	delivered := v.read.delivered
	has := delivered != nil && delivered.uid == string(r.operation.GetUID()) && delivered.step == task.Step
	switch {
	case has || delivered != nil && !task.Rendered:
		v.plan = *delivered
	case task.Apart && delivered == nil:
		v.plan = plan{}
	case task.Rendered && !v.state.Init && v.joinURL == "":
		v.state.Problem = "there is no server that the machine can join"
	}
	if !has {
		v.plan = r.withTask(v, v.plan, task)
	}
	r.setChange(v)
	v.state.Task, v.state.Regardless = true, task.Regardless
}

func (r *reconciliation) withTask(v *view, p plan, task Task) plan {
	stopped := p.stopped()
	p.uid, p.step, p.task, p.newToken, p.stillStopped = string(r.operation.GetUID()), task.Step, task.Name, 0, false
	op, is := r.operation.(*operationv1.ETCDSnapshotRestore)
	p.target = is && op.Status.MachineName == v.host.name
	switch task.Name {
	case TaskStop:
		p.stamp = stamp{}
	case TaskRestoreSnapshot:
		p.skipStart = true
	case TaskStart:
	case TaskConfigureToken:
		p.token = r.tokens.server
	case TaskRotateToken:
		p.newToken = r.tokens.next
	case TaskCheckToken:
		p.newToken = r.tokens.server
	default:
		if task.Apart && stopped {
			p.stamp, p.stillStopped = stamp{}, true
		} else if task.Apart {
			p.apart = true
			if v.state.Progress != rollout.ProgressApplied && v.state.Underway != rollout.ChangeFirst {
				p.stamp = stamp{}
			}
		}
	}
	return p
}

func (r *reconciliation) stoppedMachines() (names []string) {
	for _, v := range r.machines {
		if p := v.read.delivered; !v.state.Deleting && p != nil && r.rules.stopped(*p) {
			names = append(names, v.host.name)
		}
	}
	return names
}

func (r *reconciliation) strayNodes() (stray []StrayNode) {
	c := r.current()
	if !r.connected || c == nil {
		return nil
	}
	for name, n := range c.nodes {
		if h := r.hosts[name]; h == nil || h.api.deleting && h.has("e") {
			stray = append(stray, StrayNode{Name: name, Lost: !n.ready})
		}
	}
	slices.SortFunc(stray, func(a, b StrayNode) int { return strings.Compare(a.Name, b.Name) })
	return stray
}

func (r *reconciliation) rolloutInputs() rollout.Inputs {
	in := rollout.Inputs{Now: r.now(), Machines: r.states(), Bootstrapped: r.bootstrapped, ControlPlaneConcurrency: r.controlPlane,
		WorkerConcurrency: r.worker, OrphanedMembers: r.orphanedMembers()}
	if r.drains {
		in.ControlPlaneDrain = rollout.DrainOptions{Enabled: true, Options: "drain"}
		in.WorkerDrain = in.ControlPlaneDrain
	}
	if holds := r.rules.holds(r.operation, r.tokens.next != 0); holds != "" {
		in.Hold = rollout.Wait{Reason: rollout.ReasonWaitingForOperation, Message: "Waiting for " + holds + " to end"}
	}
	switch {
	case r.election.Init == "":
		in.Blocked = r.election.Wait
	case r.operation != nil && r.rules.exclusive(r.operation):
		in.Blocked = rollout.Wait{Reason: rollout.ReasonWaitingForOperation, Message: "Waiting for the operation"}
	case len(r.stoppedMachines()) > 0:
		in.Blocked = rollout.Wait{Reason: rollout.ReasonRestoreFailed, Message: "stopped"}
	}
	return in
}
