package rollout

import (
	"fmt"
	"slices"
)

// inputs reads from the hub's API, and from the cluster's where it is reached, all that a decision is made of. Nothing is kept from one
// pass to the next, so that every pass is one of a hub that has just been started.
func (w *world) inputs() Inputs {
	in := Inputs{
		Now: w.now(), Bootstrapped: w.bootstrapped, Paused: w.paused,
		ControlPlaneConcurrency: w.spec.controlPlane, WorkerConcurrency: w.spec.worker,
		ControlPlaneDrain: w.drainOptions(), WorkerDrain: w.drainOptions(),
	}
	for _, h := range w.sorted() {
		in.Machines = append(in.Machines, w.machine(h))
	}
	if w.connected {
		for name, membership := range w.etcd {
			if w.hosts[name] == nil {
				in.OrphanedMembers = append(in.OrphanedMembers, Member{Node: name, State: NodeLost, Membership: membership, Health: MemberUnhealthy,
					CheckedAt: w.now()})
			}
		}
	}
	if w.see != nil {
		w.see(&in)
	}
	if w.rand != nil {
		w.rand.Shuffle(len(in.Machines), func(i, j int) { in.Machines[i], in.Machines[j] = in.Machines[j], in.Machines[i] })
	}
	return in
}

func (w *world) drainOptions() DrainOptions {
	o := DrainOptions{Enabled: w.spec.drain, Hooks: w.spec.hooks, Options: "drain", HooksOnly: "hooks"}
	if !o.Enabled {
		o.Options = "hooks"
	}
	return o
}

func (w *world) machine(h *host) Machine {
	m := Machine{
		Name: h.name, Etcd: h.has("e"), ControlPlane: h.has("c"), Worker: h.has("w"), Deleting: h.deleting, HasPlanSecret: h.identity,
		PlanSecret: h.name + "-machine-plan",
		Init:       h.init, JoinURL: h.joinURL, JoinedTo: h.joinedTo, Progress: h.state, CheckedIn: h.checkedIn, ProbesPassed: h.probesPassed,
		Version: h.nodeInfo, WantVersion: version(w.spec.Version), Drain: h.drain, Removal: h.removal,
	}
	if h.delivered == nil || *h.delivered != w.spec.plan {
		m.Problem = w.problem
	}
	if !h.provisioned {
		m.Unusable = "has no infrastructure yet"
	}
	if h.state == ProgressFailed {
		m.Failure = "An attempt to apply the plan failed"
	}
	if h.delivered != nil && h.state != ProgressApplied {
		m.Underway = ChangeFirst
		if h.applied != nil {
			m.Underway = between(*h.applied, *h.delivered)
		}
	}
	if h.delivered != nil {
		m.Unhealthy = h.failing
		if !h.probed {
			m.HealthUnknown, m.Unhealthy = []string{probeEtcd, probeKubelet}, nil
		}
		m.EtcdProbe = w.etcdProbe(h)
	}
	m.LastSeen = h.lastSeen
	if w.connected {
		switch {
		case !h.node:
			m.Node, m.Membership = NodeAbsent, MemberNone
		case h.ready:
			m.Node = NodeReady
		case h.silentFor > 1:
			m.Node = NodeLost
		default:
			m.Node = NodeNotReady
		}
		if h.node && m.Etcd {
			m.Membership, m.MemberHealth, m.MemberCheckedAt = h.membership, h.health, h.checkedAt
			if h.asked {
				m.Removal = RemovalRequested
			}
		}
	}
	return m
}

// hubPass is one pass of the control plane's controller.
func (w *world) hubPass() {
	in := w.inputs()
	election := w.elect(in.Machines, "", w.started())
	if election.Init == "" {
		in.Blocked = Wait{election.Reason, election.Message}
	}
	for i := range in.Machines {
		m := &in.Machines[i]
		m.Init = m.Name == election.Init
		if m.JoinURL == "" && m.Server() && w.joinable(*m) {
			m.JoinURL = url(m.Name)
		}
	}
	wanted := map[string]*plan{}
	for i := range in.Machines {
		m := &in.Machines[i]
		p := w.spec.plan
		p.Server, p.Init = JoinURL(in.Machines, *m, m.Name), m.Init
		wanted[m.Name] = &p
		if delivered := w.hosts[m.Name].delivered; delivered == nil {
			m.Change = ChangeFirst
		} else {
			m.Change = between(*delivered, p)
		}
	}
	in.Bootstrapped = w.started()
	w.outcome = Decide(in)
	w.waits = map[string]Decision{}
	for _, m := range in.Machines {
		if m.Init && m.Working() {
			w.bootstrapped, w.established = true, true
		}
	}
	w.write(in, wanted)
}

func (w *world) started() bool {
	return w.bootstrapped || slices.ContainsFunc(w.sorted(), func(h *host) bool { return h.joinURL != "" })
}

// write carries the decisions out, machine by machine, and may be killed at any point.
func (w *world) write(in Inputs, wanted map[string]*plan) {
	writes, byName := 0, make(map[string]Machine, len(in.Machines))
	for _, m := range in.Machines {
		byName[m.Name] = m
	}
	killed := func() bool {
		writes++
		return w.limit >= 0 && writes > w.limit
	}
	for _, marked := range []bool{false, true} {
		for _, d := range w.outcome.Decisions {
			m := byName[d.Machine]
			h := w.hosts[d.Machine]
			if m.Init != marked || h.init == m.Init && h.joinURL == m.JoinURL && !d.Deliver && d.Drain == "" && !d.Uncordon {
				continue
			}
			if killed() {
				w.say("the hub is killed")
				return
			}
			if m.Init && !h.init {
				w.say("%s becomes the init node", h.name)
			}
			h.init, h.joinURL = m.Init, m.JoinURL
			w.apply(h, m, d, wanted[h.name])
		}
	}
	for _, d := range w.outcome.Decisions {
		w.waits[d.Machine] = d
		if d.Reason == "" || d.Message == "" {
			w.fault("%s has no reason", d.Machine)
		}
		w.checkMessage(byName[d.Machine], d)
	}
}

func (w *world) apply(h *host, m Machine, d Decision, p *plan) {
	switch {
	case d.Drain != "":
		w.checkTaken(h, m)
		h.drain, h.drainLeft = Drain{Requested: d.Drain}, 0
	case d.Uncordon:
		h.drain.Uncordon, h.drain.Error, h.drainLeft = h.drain.Requested, "", 0
	}
	if !d.Deliver {
		return
	}
	w.checkDelivery(h, m, p)
	if m.Change.Disruptive() && m.joined() && h.up() {
		h.taken, h.takenAt = true, w.step
	}
	h.delivered, h.state, h.joinedTo = p, ProgressPending, p.Server
	h.probed, h.probesPassed, h.failing = false, false, nil
}

// look is what a person sees: what the cluster and each machine wait for.
func (w *world) look() []string {
	lines := []string{"cluster: done"}
	if !w.outcome.Done {
		lines[0] = fmt.Sprintf("cluster: %s: %s", w.outcome.Wait.Reason, w.outcome.Wait.Message)
	}
	for _, d := range w.outcome.Decisions {
		lines = append(lines, fmt.Sprintf("    %s: %s: %s", d.Machine, d.Reason, d.Message))
	}
	return lines
}
