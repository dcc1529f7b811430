package rollout

import "slices"

// view is what the rules see: the inputs, and what was decided so far in this call of Decide.
type view struct {
	Inputs
	groups [groups]groupState
	// blocks are what each tier blocks in later ones.
	blocks []blocks
	// etcdBusy are the machines whose etcd member is going through something, etcdActivity what that is.
	etcdBusy     names
	etcdActivity map[string]etcdActivity
	// singleMachine is set where there is no other Node to drain to: no other machine has joined.
	singleMachine bool
	// initJoinable and serverJoinable are set where servers and workers have a machine to join.
	initJoinable, serverJoinable bool
	// nodesSeen is set where the cluster's Nodes were ever read.
	nodesSeen bool
}

// groupState is the availability of a group.
type groupState struct {
	// size is the number of its machines that have joined, without those that are being deleted: only they serve anything.
	size int
	// unavailable are those that may not be serving, takenDown those of them that are so for a change: changing, or drained for a change.
	unavailable, takenDown names
	// changing are those of takenDown that have their change.
	changing names
}

// changeBefore are the machines that change before one that is drained already: those that are changing, and those drained with a lower
// name.
func (g groupState) changeBefore(name string) names {
	var out names
	for _, other := range g.takenDown {
		if other != name && (other < name || slices.Contains(g.changing, other)) {
			out = append(out, other)
		}
	}
	return out
}

func (g *groupState) takeDown(name string, changing bool) {
	g.unavailable.add(name)
	g.takenDown.add(name)
	if changing {
		g.changing.add(name)
	}
}

// blocks are the machines of a tier that later tiers wait for.
type blocks struct {
	// joins are those that must be in the cluster before machines of later tiers, changes those that have to change before them, and outdated
	// those that run another version than wanted.
	joins, changes, outdated names
	// tasks are those that tasks of an operation wait for. One with another change is not among them: it waits for the operation.
	tasks names
	// failed are those whose plan has failed.
	failed names
}

// failedOf is the end of a message: which of the names have failed, so that nobody waits for them in vain.
func (b blocks) failedOf(among names) string {
	failed := slices.DeleteFunc(slices.Clone(among), func(name string) bool { return !slices.Contains(b.failed, name) })
	if len(failed) == 0 {
		return ""
	}
	return "; " + joinNames(failed) + " failed"
}

func newView(in Inputs) *view {
	v := &view{Inputs: in, blocks: make([]blocks, len(tiers)), etcdActivity: map[string]etcdActivity{}, nodesSeen: nodesSeen(in.Machines)}
	if missing := missingRoles(in); missing != (Wait{}) && !in.Bootstrapped && v.Blocked.Reason != ReasonEtcdLost {
		v.Blocked = missing
	}
	joined, next := 0, nextRemoval(in)
	for i := range in.Machines {
		m := &in.Machines[i]
		g := &v.groups[groupOf(m)]
		if m.JoinURL != "" {
			v.initJoinable = v.initJoinable || m.Init
			v.serverJoinable = v.serverJoinable || m.ControlPlane && !m.Deleting
		}
		activity := m.etcdActivity(v.nodesSeen)
		if activity == "" && !m.Deleting && (m.restartUnverified(in.Now) || m.etcdMember() && m.replacingPods(in.Now)) {
			activity = etcdUnverified
		}
		if activity == "" && m.Name == next && CheckRemoval(in, next) == (Wait{}) {
			activity = etcdLeaving
		}
		if activity != "" {
			v.setEtcdActivity(m.Name, activity)
		}
		if m.Deleting {
			continue
		}
		if m.joined() {
			g.size++
			joined++
		}
		if m.LeftOut {
			continue
		}
		if m.unavailable() || m.replacingPods(in.Now) {
			g.unavailable.add(m.Name)
		}
		if m.takenDown() {
			g.takeDown(m.Name, m.changing())
		}
	}
	v.singleMachine = joined == 1
	return v
}

// held reports whether a machine has a change that is held back, for an operation mostly.
func (v *view) held(m *Machine) bool { return v.Hold != (Wait{}) && !m.Task && m.Change.Disruptive() }

func (v *view) setEtcdActivity(name string, activity etcdActivity) {
	v.etcdBusy.add(name)
	v.etcdActivity[name] = activity
}

// record adds the effect of a decision, for the machines that come after it.
func (v *view) record(t int, m *Machine, d Decision) {
	disruptive := d.Drain != "" || d.Deliver && m.Change.Disruptive()
	if disruptive && (m.Etcd || !m.Node.Unready()) {
		v.groups[groupOf(m)].takeDown(m.Name, d.Deliver)
	}
	switch {
	case !m.Etcd:
	case disruptive:
		v.setEtcdActivity(m.Name, etcdChanging)
	case d.Deliver && m.Change == ChangeFirst:
		v.setEtcdActivity(m.Name, etcdJoining)
	}
	if m.Deleting || !m.HasPlanSecret {
		return
	}
	b := &v.blocks[t]
	if m.wrongVersion() {
		b.outdated.add(m.Name)
	}
	if m.wrongVersion() || m.Init && m.JoinURL == "" || m.joining() {
		b.joins.add(m.Name)
	}
	// A machine that is down and does not take its change is not waited for: what others do neither helps nor harms it.
	down := m.Node.Unready() && (m.Progress == ProgressPending || m.agentUnreachable(v.Now)) && !m.wrongVersion()
	if m.joined() && !m.verified() && !down {
		b.changes.add(m.Name)
	}
	settled := m.Progress == ProgressApplied && !m.starting() && (!m.draining() || v.held(m)) && (!m.Task || m.Change == ChangeNone)
	if m.joined() && !settled && !down {
		b.tasks.add(m.Name)
	}
	if m.Progress == ProgressFailed {
		b.failed.add(m.Name)
	}
}
