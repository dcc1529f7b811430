package rollout

import (
	"fmt"
	"maps"
	"slices"
)

// inputs reads the inputs of a decision from the hub's API and, if connected, from the cluster's. It keeps nothing between two reconciles,
// so that each is that of a hub that has just started.
func (s *simulation) inputs() Inputs {
	in := Inputs{
		Now: s.now(), Bootstrapped: s.bootstrapped,
		ControlPlaneConcurrency: s.spec.controlPlane, WorkerConcurrency: s.spec.worker,
		ControlPlaneDrain: s.drainOptions(), WorkerDrain: s.drainOptions(),
	}
	hosts := s.sortedHosts()
	in.Machines = make([]Machine, 0, len(hosts))
	for _, h := range hosts {
		in.Machines = append(in.Machines, s.machine(h))
	}
	if s.connected {
		for _, name := range slices.Sorted(maps.Keys(s.etcd)) {
			if s.hosts[name] == nil {
				in.OrphanedMembers = append(in.OrphanedMembers, Member{Node: name, State: NodeLost, Membership: s.etcd[name],
					Health: MemberUnhealthy, CheckedAt: s.now()})
			}
		}
	}
	if s.changeInputs != nil {
		s.changeInputs(&in)
	}
	if s.rand != nil {
		s.rand.Shuffle(len(in.Machines), func(i, j int) { in.Machines[i], in.Machines[j] = in.Machines[j], in.Machines[i] })
	}
	return in
}

func (s *simulation) drainOptions() DrainOptions {
	o := DrainOptions{Enabled: s.spec.drain, Hooks: s.spec.hooks, Options: "drain", HooksOnly: "hooks"}
	if !o.Enabled {
		o.Options = "hooks"
	}
	return o
}

func (s *simulation) machine(h *host) Machine {
	m := Machine{
		Name: h.name, Etcd: h.has("e"), ControlPlane: h.has("c"), Worker: h.has("w"), Deleting: h.deleting, HasPlanSecret: h.identity,
		PlanSecret: h.planSecret,
		Init:       h.init, JoinURL: h.joinURL, JoinedTo: h.joinedTo, Progress: h.state, CheckedIn: h.checkedIn, ProbesPassed: h.probesPassed,
		Version: h.nodeInfo, WantVersion: version(s.spec.Version), Drain: h.drain, Removal: h.removal,
	}
	if h.delivered == nil || *h.delivered != s.spec.plan {
		m.Problem = s.problem
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
			m.Underway = Worst(changeBetween(*h.applied, *h.delivered), h.replaced)
		}
	}
	if h.delivered != nil {
		m.Unhealthy = h.failing
		if !h.probed {
			m.HealthUnknown, m.Unhealthy = []string{probeEtcd, probeKubelet}, nil
		}
		m.EtcdProbe = s.etcdProbe(h)
	}
	m.LastSeen = h.lastSeen
	if s.connected {
		switch {
		case !h.node:
			m.Node, m.Membership = NodeAbsent, MemberNone
		case h.ready:
			m.Node = NodeReady
		case h.notReadyFor > 1:
			m.Node = NodeLost
		default:
			m.Node = NodeNotReady
		}
		if h.node && m.Etcd {
			m.Membership, m.MemberHealth, m.MemberCheckedAt = h.membership, h.health, h.checkedAt
			if h.removalRequested {
				m.Removal = RemovalRequested
			}
		}
	}
	return m
}

// reconcile is one reconcile of the controller of the RKEControlPlane.
func (s *simulation) reconcile() {
	in := s.inputs()
	election := s.elect(in.Machines, "", s.started())
	if election.Init == "" {
		in.Blocked = Wait{election.Reason, election.Message}
	}
	for i := range in.Machines {
		m := &in.Machines[i]
		m.Init = m.Name == election.Init
		if m.JoinURL == "" && m.Server() && s.joinable(*m) {
			m.JoinURL = url(m.Name)
		}
	}
	wanted := make([]plan, len(in.Machines))
	for i := range in.Machines {
		m := &in.Machines[i]
		p := s.spec.plan
		p.Server, p.Init = JoinURL(in.Machines, *m, m.Name), m.Init
		wanted[i] = p
		if delivered := s.hosts[m.Name].delivered; delivered == nil {
			m.Change = ChangeFirst
		} else {
			m.Change = changeBetween(*delivered, p)
		}
	}
	in.Bootstrapped = s.started()
	s.outcome = decide(in, s.rules)
	for i := range in.Machines {
		if m := &in.Machines[i]; m.Init && m.Working() {
			s.bootstrapped, s.established = true, true
		}
	}
	s.writeDecisions(in, wanted)
}

func (s *simulation) started() bool {
	return s.bootstrapped || slices.ContainsFunc(s.sortedHosts(), func(h *host) bool { return h.joinURL != "" })
}

// writeDecisions writes the decisions machine by machine, until maxWrites.
func (s *simulation) writeDecisions(in Inputs, wanted []plan) {
	writes, byName := 0, make(map[string]int, len(in.Machines))
	for i := range in.Machines {
		byName[in.Machines[i].Name] = i
	}
	killed := func() bool {
		writes++
		return s.maxWrites >= 0 && writes > s.maxWrites
	}
	// In the order of the controller: the machine that was the init node, the init node, and all others.
	order := make(map[string]int, len(in.Machines))
	for i := range in.Machines {
		switch m := &in.Machines[i]; {
		case m.Init:
			order[m.Name] = 1
		case !s.hosts[m.Name].init:
			order[m.Name] = 2
		}
	}
	for step := range 3 {
		for _, d := range s.outcome.Decisions {
			i := byName[d.Machine]
			m := &in.Machines[i]
			h := s.hosts[d.Machine]
			if order[d.Machine] != step || h.init == m.Init && h.joinURL == m.JoinURL && !d.Deliver && d.Drain == "" && !d.Uncordon {
				continue
			}
			if killed() {
				s.recordEvent("the hub is killed")
				return
			}
			if m.Init && !h.init {
				s.recordEvent("%s becomes the init node", h.name)
			}
			h.init, h.joinURL = m.Init, m.JoinURL
			p := wanted[i]
			s.writeDecision(h, *m, d, &p)
		}
	}
	for _, d := range s.outcome.Decisions {
		if d.Reason == "" || d.Message == "" {
			s.fault("%s has no reason", d.Machine)
		}
		s.checkMessage(&in.Machines[byName[d.Machine]], d)
	}
}

func (s *simulation) writeDecision(h *host, m Machine, d Decision, p *plan) {
	switch {
	case d.Drain != "":
		s.checkUnavailable(h, m)
		h.drain, h.drainLeft = Drain{Requested: d.Drain}, 0
	case d.Uncordon:
		h.drain.Uncordon, h.drain.Error, h.drainLeft = h.drain.Requested, "", 0
	}
	if !d.Deliver {
		return
	}
	s.checkDelivery(h, m, p)
	if m.Change.Disruptive() && m.joined() && h.up() {
		h.changing, h.changeStartedAt = true, s.step
	}
	h.delivered, h.state, h.joinedTo, h.replaced = p, ProgressPending, p.Server, m.Replaced()
	h.probed, h.probesPassed, h.failing = false, false, nil
}

// messages are the conditions that users read: those of the cluster and of each machine.
func (s *simulation) messages() []string {
	lines := []string{"cluster: done"}
	if !s.outcome.Done {
		lines[0] = fmt.Sprintf("cluster: %s: %s", s.outcome.Wait.Reason, s.outcome.Wait.Message)
	}
	for _, d := range s.outcome.Decisions {
		lines = append(lines, fmt.Sprintf("    %s: %s: %s", d.Machine, d.Reason, d.Message))
	}
	return lines
}
