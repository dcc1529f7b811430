package rollout

// DrainOptions are how the machines of a role are drained.
type DrainOptions struct {
	// Enabled is set where Nodes are drained before a ChangeDrain, Hooks where there are pre-drain or post-drain hooks.
	Enabled, Hooks bool
	// Options are the options as JSON, the value of the annotation rke.cattle.io/drain-options: the same options are always the same bytes.
	Options string
	// HooksOnly are the same options with draining disabled, for a machine whose Pods cannot go anywhere else.
	HooksOnly string
}

// Drain is the state of a machine's drain. The values are those of the annotations of its plan Secret; all are empty once a drain has
// ended.
type Drain struct {
	// Requested are the options of the requested drain; empty if there is none.
	Requested string
	// Done equals Requested once the Node is drained.
	Done string
	// Error says why the drain is stuck, Waiting what it waits for in its normal course. Both are empty for nothing.
	Error, Waiting string
	// Uncordon equals Requested once the end of the drain was requested.
	Uncordon string
}

// Drained reports whether the requested drain is done, and its end was not requested yet.
func (d Drain) Drained() bool { return d.Requested != "" && d.Done == d.Requested && d.Uncordon == "" }

// detail is the end of a message about the drain.
func (d Drain) detail() string {
	if d.Waiting == "" {
		return ""
	}
	return ": " + d.Waiting
}

// drainFor returns the options that a machine is to be drained with before its change; empty where it needs no drain.
func (v *view) drainFor(m *Machine) string {
	o := v.WorkerDrain
	if m.Server() {
		o = v.ControlPlaneDrain
	}
	switch {
	case m.Change != ChangeDrain, !m.joined(), !o.Enabled && !o.Hooks, m.Node == NodeAbsent, m.Node == NodeUnknown && m.Version == "":
		return ""
	case v.singleMachine || m.Node.Unready():
		// There is no other Node, or no kubelet to terminate Pods.
		if o.Hooks {
			return o.HooksOnly
		}
		return ""
	}
	return o.Options
}

// needsDrain drains a Node before a change that affects its workloads. One that was drained with other options is drained again, which
// takes little where nothing is left on it.
func needsDrain(v *view, m *Machine) (Decision, bool) {
	wanted := v.drainFor(m)
	switch {
	case wanted == "" && m.Change.Disruptive() && m.draining() && m.Drain.Done != m.Drain.Requested && m.Node != NodeUnknown &&
		!m.Node.Unready():
		// A drain that is no longer asked for would go on evicting Pods until the machine is healthy with its change.
		return needsUncordon(v, m)
	case wanted == "" || m.Drain.Requested == wanted && m.Drain.Drained():
		return undecided()
	case m.Node == NodeUnknown && m.unwell():
		// The API cannot be reached to drain anything, perhaps for the very reason that this change removes.
		return undecided()
	case m.Node == NodeUnknown:
		return wait(ReasonWaitingForConnection, "Waiting for a connection to the cluster's API, to drain the Node before the change")
	case m.Drain.Uncordon != "" && m.Drain.Error != "":
		return wait(ReasonDrainFailed, "Uncordoning the Node after its last drain failed, retrying: %s", m.Drain.Error)
	case m.Drain.Uncordon != "":
		return wait(ReasonUncordoning, "Waiting for the Node to be uncordoned after its last drain%s", m.Drain.detail())
	case m.Drain.Requested != wanted:
		return Decision{Drain: wanted, Reason: ReasonDraining, Message: "Draining the Node before the change"}, true
	case m.Drain.Error != "":
		return wait(ReasonDrainFailed, "Draining the Node before the change failed, retrying: %s", m.Drain.Error)
	}
	return wait(ReasonDraining, "Waiting for the Node to be drained before the change%s", m.Drain.detail())
}

// needsUncordon ends the drain of a machine that works with its change, or needs none any more.
func needsUncordon(_ *view, m *Machine) (Decision, bool) {
	switch {
	case !m.draining():
		return undecided()
	case m.Drain.Uncordon != m.Drain.Requested:
		return Decision{Uncordon: true, Reason: ReasonUncordoning, Message: "Uncordoning the Node"}, true
	case m.Drain.Error != "":
		return wait(ReasonDrainFailed, "Uncordoning the Node failed, retrying: %s", m.Drain.Error)
	}
	return wait(ReasonUncordoning, "Waiting for the Node to be uncordoned%s", m.Drain.detail())
}
