package rollout

import "time"

// unreachable tells whether the machine is away and does not take the change that waits for it: what others do can neither help nor harm it,
// unless they became newer than it is.
func (m Machine) unreachable(now time.Time) bool {
	return m.Node.Unready() && (m.Progress == ProgressPending || m.silent(now)) && !m.lags()
}

// lacksInfrastructure keeps the first plan back until what the infrastructure knows of the machine can be in it, and there is a machine to
// take it: nobody has to wait for one that may never come.
func lacksInfrastructure(_ *view, m Machine) (Decision, bool) {
	if m.Change != ChangeFirst || m.Unusable == "" {
		return pass()
	}
	return wait(ReasonWaitingForInfrastructure, "The machine %s", m.Unusable)
}

// isNotItsTurn keeps the order of the tiers. A machine that is unwell, drained, or at a change already has nothing to lose by another one: a
// worker waits only where it would become newer than the servers, and a server not at all, since those before it may be waiting for it.
func isNotItsTurn(v *view, m Machine) (Decision, bool) {
	if m.Change == ChangeNone {
		return pass()
	}
	free := m.unwell() || m.draining() || m.changing()
	for t := range tierOf(m) {
		h := v.holds[t]
		names := h.change
		switch {
		case free && m.Server():
			names = nil
		case !m.joined():
			names = h.first
		case free:
			names = h.lag
		}
		if len(names) == 0 {
			continue
		}
		title, which := tiers[t].title, ""
		if len(names) > 1 {
			title += "s"
		}
		if failed := h.failedOf(names); failed != "" {
			which = "; " + failed
		}
		return waitForOthers(ReasonWaitingForTurn, tiers[tierOf(m)].turn, "Waiting for the %s %s to be ready first%s", title, list(names), which)
	}
	return pass()
}

// failedOf says which of the names have failed, so that nobody waits for what does not come by itself.
func (h hold) failedOf(names []string) string {
	var failed []string
	for _, name := range names {
		if h.failed[name] {
			failed = append(failed, name)
		}
	}
	if len(failed) == 0 {
		return ""
	}
	return list(failed) + " failed"
}

func lacksJoinURL(v *view, m Machine) (Decision, bool) {
	if m.Change == ChangeNone || m.Init {
		return pass()
	}
	if m.Server() && v.initJoinable || !m.Server() && v.serverJoinable {
		return pass()
	}
	if m.Server() {
		return wait(ReasonWaitingForJoinURL, "Waiting for the address of the first etcd node, which the machine is to join")
	}
	return wait(ReasonWaitingForJoinURL, "Waiting for the address of a control plane node, which the machine is to join")
}
