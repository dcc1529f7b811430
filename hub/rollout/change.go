package rollout

// mayStart lets etcd machines join one by one, since etcd takes in one new member at a time; all others may start at once.
func mayStart(v *view, m Machine) (Decision, bool) {
	if m.Change != ChangeFirst {
		return pass()
	}
	if m.Etcd {
		if d, waits := waitsForEtcd(v, m); waits {
			return d, true
		}
	}
	return deliver("Delivering the machine's first plan")
}

// isSilent keeps a change back from a member of etcd whose agent is not there to take it: nobody could tell when it will be taken, and other
// members would have to wait for that.
func isSilent(v *view, m Machine) (Decision, bool) {
	if !m.Change.Disruptive() || !m.memberOfEtcd() || !m.silent(v.Now) {
		return pass()
	}
	return wait(ReasonWaitingForAgent, "A change waits for the agent of the machine, which was last seen at %s; check that the machine is up and that rancher-system-agent.service runs",
		m.LastSeen.UTC().Format("2006-01-02 15:04:05 MST"))
}

// waitsForEtcd lets one thing happen to etcd at a time, in all tiers together: a member that joins, goes, or restarts. Where the machine's etcd
// is down, what joins or goes does not make that worse; but it is never changed together with another one: it may come back at any moment, and
// restart at the same time. Of several that were changed already, those that are down have nothing to lose, and the others go by their names.
func waitsForEtcd(v *view, m Machine) (Decision, bool) {
	if m.Change == ChangeNone || !m.Etcd {
		return pass()
	}
	disruptive := m.Change.Disruptive() && m.memberOfEtcd()
	down, again := disruptive && m.etcdState(v.Now) == etcdDown, disruptive && m.disrupted(v.Now)
	for _, other := range v.etcd {
		what := v.etcdWhat[other]
		changed := what == etcdChanging || what == etcdUnverified
		switch {
		case other == m.Name:
			continue
		case changed && again && (down || m.Name < other), !changed && (down || again && m.changing()):
			continue
		case what == etcdUnverified && !disruptive:
			// A new member takes nobody away.
			continue
		case m.Name < other && (what == etcdDraining && m.draining() || what == etcdJoining && m.changing()):
			// Of several that are drained already, or that came before anybody could tell who votes, the first goes on.
			continue
		case what == etcdUnsure && m.Change.Disruptive():
			// The API may be away for the very reason that this change removes, and a restart does a learner no harm.
			continue
		}
		return waitForOthers(ReasonWaitingForOthers, etcdGroup.busy(), "Waiting for %s, which %s: etcd takes one change at a time", other, what)
	}
	return pass()
}

// waitsForOthers keeps enough machines of a group at work. One that is unavailable itself costs nothing more, and waits only for those that
// were taken away for a change; one that has never been part of the cluster costs nothing at all.
func waitsForOthers(v *view, m Machine) (Decision, bool) {
	if !m.Change.Disruptive() || !m.joined() || m.changing() {
		return pass()
	}
	kind := groupOf(m)
	g := v.groups[kind]
	limit := kind.limit(v.Inputs, g.stay)
	count, names := g.away.but(m.Name)
	switch {
	case m.draining():
		ahead := g.ahead(m.Name)
		count, names = len(ahead), list(ahead)
	case m.unavailable():
		count, names = g.gone.but(m.Name)
	}
	if count < limit {
		return pass()
	}
	return waitForOthers(ReasonWaitingForOthers, kind.busy(), "Waiting for %s: at most %d of %d %ss may be unavailable at a time", names, limit, g.stay, kind.title())
}

// waitsForQuorum keeps etcd's quorum. What agents have said is old where their machines have died since, so that the Nodes are asked too,
// unless it is this very machine that may have to be changed before the cluster's API answers again.
func waitsForQuorum(v *view, m Machine) (Decision, bool) {
	if !m.Change.Disruptive() || !m.votes() {
		return pass()
	}
	if v.reached && m.Node == NodeUnknown && !m.broken() {
		return wait(ReasonWaitingForConnection, "A change waits for the connection to the API of the cluster, which tells whether the other members of etcd are up")
	}
	if w := spares(v.Inputs, m); w != (Wait{}) {
		return waitForOthers(w.Reason, "Waiting for more voting members of etcd to be up: without this machine, etcd would lose its quorum", "%s", w.Message)
	}
	return pass()
}

func mayChange(_ *view, m Machine) (Decision, bool) {
	if !m.Change.Disruptive() {
		return pass()
	}
	if m.changing() {
		return deliver("Delivering a change in place of the one that is under way")
	}
	return deliver("Delivering a change")
}
