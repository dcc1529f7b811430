package rollout

// view is what the links of the chain see: the inputs, and what was decided so far in this very pass.
type view struct {
	Inputs
	groups [groups]members
	// holds are what the tiers hold up.
	holds []hold
	// etcd are the machines at whose etcd something is going on, with what it is.
	etcd     others
	etcdWhat map[string]string
	// single is set where a node has nowhere to drain to.
	single bool
	// initJoinable and serverJoinable are set where servers and workers have a machine to join.
	initJoinable, serverJoinable bool
	// reached is set where the cluster's Nodes were ever seen.
	reached bool
}

// members are the machines of a group.
type members struct {
	// stay is how many there are, without those that are being deleted.
	stay int
	// away are those that are not doing their part, gone those of them that were taken away for a change: they are at it, or drained for it.
	away, gone others
	atIt       map[string]bool
}

// ahead are those that were taken away for a change and go before a machine that is drained already: several that are drained get their
// change in the order of their names.
func (g members) ahead(name string) others {
	var out others
	for _, other := range g.gone {
		if other != name && (other < name || g.atIt[other]) {
			out = append(out, other)
		}
	}
	return out
}

func (g *members) take(name string, atIt bool) {
	g.away.add(name)
	g.gone.add(name)
	if atIt {
		if g.atIt == nil {
			g.atIt = map[string]bool{}
		}
		g.atIt[name] = true
	}
}

// hold is which machines of a tier others wait for.
type hold struct {
	// first are those that machines of later tiers must not overtake into the cluster, change those that their changes wait for, and lag
	// those that run another version than they should.
	first, change, lag others
	// failed are those of them that have failed.
	failed map[string]bool
}

func newView(in Inputs) *view {
	v := &view{Inputs: in, holds: make([]hold, len(tiers)), etcdWhat: map[string]string{}, reached: reached(in.Machines)}
	if wait := sane(in); wait != (Wait{}) && !in.Bootstrapped && v.Blocked.Reason != ReasonEtcdLost {
		v.Blocked = wait
	}
	stay, next := 0, nextRemoval(in)
	for _, m := range in.Machines {
		g := &v.groups[groupOf(m)]
		if m.JoinURL != "" {
			v.initJoinable = v.initJoinable || m.Init
			v.serverJoinable = v.serverJoinable || m.ControlPlane && !m.Deleting
		}
		what := m.etcdChange(v.reached)
		if what == "" && !m.Deleting && m.disrupted(in.Now) {
			what = etcdUnverified
		}
		if what == "" && m.Name == next && MayRemove(in, next) == (Wait{}) {
			what = etcdLeaving
		}
		if what != "" {
			v.busy(m.Name, what)
		}
		if m.Deleting {
			continue
		}
		stay++
		g.stay++
		if m.unavailable() {
			g.away.add(m.Name)
		}
		if m.takenAway() {
			g.take(m.Name, m.changing())
		}
	}
	v.single = stay == 1
	return v
}

func (v *view) busy(name, what string) {
	v.etcd.add(name)
	v.etcdWhat[name] = what
}

// began takes in what was decided about a machine, for those that are looked at after it.
func (v *view) began(m Machine, d Decision) {
	disruptive := d.Drain != "" || d.Deliver && m.Change.Disruptive()
	if disruptive && (m.Etcd || !m.Node.Unready()) {
		v.groups[groupOf(m)].take(m.Name, d.Deliver)
	}
	switch {
	case !m.Etcd:
	case disruptive:
		v.busy(m.Name, etcdChanging)
	case d.Deliver && m.Change == ChangeFirst:
		v.busy(m.Name, etcdJoining)
	}
}

// hold takes in what later tiers have to wait for at a machine.
func (v *view) hold(t int, m Machine) {
	if m.Deleting || !m.Identity {
		return
	}
	h := &v.holds[t]
	if m.lags() {
		h.lag.add(m.Name)
	}
	if m.lags() || m.Init && m.JoinURL == "" || m.comes() {
		h.first.add(m.Name)
	}
	if m.joined() && !m.settled() && !m.unreachable(v.Now) {
		h.change.add(m.Name)
	}
	if m.Progress == ProgressFailed {
		if h.failed == nil {
			h.failed = map[string]bool{}
		}
		h.failed[m.Name] = true
	}
}

// comes tells whether the machine will be part of the cluster by itself, unless it fails.
func (m Machine) comes() bool {
	switch {
	case m.Change == ChangeFirst:
		return m.Unusable == "" && m.Problem == ""
	case m.Node == NodeLost || m.Node == NodeNotReady && !m.Etcd:
		return false
	}
	return m.arriving() || m.Etcd && m.joiningEtcd()
}
