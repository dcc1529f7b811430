package rollout

// firstPlan lets etcd machines join one by one, since etcd takes in one new member at a time; all others start at once.
func firstPlan(v *view, m *Machine) (Decision, bool) {
	if m.Change != ChangeFirst {
		return undecided()
	}
	if d, busy := etcdBusy(v, m); busy {
		return d, true
	}
	return deliver("Delivering the first plan")
}

// agentMissing holds a change back from a member of etcd whose agent is not there to take it: when it would take it is unknown, and the
// other members would have to wait for that.
func agentMissing(v *view, m *Machine) (Decision, bool) {
	if !m.Change.Disruptive() || !m.etcdMember() || !m.agentUnreachable(v.Now) {
		return undecided()
	}
	return wait(ReasonWaitingForAgent,
		"Waiting for the agent, last seen at %s, to take a change; check that the machine is up and rancher-system-agent.service is running",
		m.LastSeen.UTC().Format("2006-01-02 15:04:05 MST"))
}

// etcdBusy allows one change of etcd at a time, in all tiers together: a member that joins, leaves or restarts. A machine whose etcd is
// down need not wait for members that join or leave, but is never changed together with another one: it may come up at any moment and
// restart at the same time. Of several that were changed already, those that are down go first, the others in the order of their names.
func etcdBusy(v *view, m *Machine) (Decision, bool) {
	if m.Change == ChangeNone || !m.Etcd {
		return undecided()
	}
	disruptive := m.Change.Disruptive() && m.etcdMember()
	down, changed := disruptive && m.etcdState(v.Now) == etcdDown, disruptive && m.restartUnverified(v.Now)
	for _, other := range v.etcdBusy {
		activity := v.etcdActivity[other]
		restarts := activity == etcdChanging || activity == etcdUnverified
		switch {
		case other == m.Name:
			continue
		case restarts && changed && (down || m.Name < other), !restarts && (down || changed && m.changing()):
			continue
		case activity == etcdUnverified && !disruptive:
			// A new member makes no other unavailable.
			continue
		case m.Name < other && (activity == etcdDraining && m.draining() || activity == etcdJoining && (m.changing() || m.joiningEtcd())):
			// Of several that are drained already, or that are joining since they were not known to be, the first goes on.
			continue
		case activity == etcdDraining && m.joiningEtcd():
			// The drained one waits for this one, which is given another plan to join with.
			continue
		case activity == etcdMembershipUnknown && m.Change.Disruptive():
			// The API may be down for the very reason that this change removes, and a restart does a learner no harm.
			continue
		}
		return waitForOthers(ReasonWaitingForOthers, etcdGroup.limitMessage(), "%s", oneEtcdChange(other, activity).Message)
	}
	return undecided()
}

// groupLimitReached keeps enough machines of a group available. One that is unavailable itself adds nothing to them, and waits only for
// those that were taken down for a change; one that was never part of the cluster does not count.
func groupLimitReached(v *view, m *Machine) (Decision, bool) {
	if !m.Change.Disruptive() || !m.joined() || m.changing() {
		return undecided()
	}
	kind := groupOf(m)
	g := v.groups[kind]
	limit := kind.limit(v.Inputs, g.size)
	count, text := g.unavailable.without(m.Name)
	switch {
	case m.draining():
		before := g.changeBefore(m.Name)
		count, text = len(before), joinNames(before)
	case m.unavailable():
		count, text = g.takenDown.without(m.Name)
	}
	if count < limit {
		return undecided()
	}
	return waitForOthers(ReasonWaitingForOthers, kind.limitMessage(), "Waiting for %s: %s allows %d of %d %ss to be unavailable",
		text, kind.limitedBy(), limit, g.size, kind.title())
}

// quorumNeedsMachine keeps etcd's quorum. Reports of agents are outdated where their machines have died since, so that the Nodes count too,
// unless this very machine may have to change before the cluster's API answers again.
func quorumNeedsMachine(v *view, m *Machine) (Decision, bool) {
	if !m.Change.Disruptive() || !m.votes() {
		return undecided()
	}
	if v.nodesSeen && m.Node == NodeUnknown && !m.mayBlockAPI() {
		return wait(ReasonWaitingForConnection, "Waiting for a connection to the cluster's API, to check the other etcd members")
	}
	if w := restartLosesQuorum(v.Inputs, m); w != (Wait{}) {
		return waitForOthers(w.Reason, "Waiting for more voting etcd members to be up: without this machine, etcd loses its quorum",
			"%s", w.Message)
	}
	return undecided()
}

func changeIsDisruptive(_ *view, m *Machine) (Decision, bool) {
	switch {
	case !m.Change.Disruptive():
		return undecided()
	case m.changing():
		return deliver("Delivering a change that replaces the one in progress")
	}
	return deliver("Delivering a change")
}
