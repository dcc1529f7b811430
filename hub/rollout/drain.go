package rollout

// DrainOptions are how the machines of a role are drained.
type DrainOptions struct {
	// Enabled is set where machines are drained before a change that workloads notice, Hooks where somebody wants to be asked before and
	// after.
	Enabled, Hooks bool
	// Options are the options as JSON, as the annotation rke.cattle.io/drain-options holds them: the same options are always the same bytes.
	Options string
	// HooksOnly are the same options with draining disabled, for a machine that has nowhere to drain to.
	HooksOnly string
}

// Drain is how far a machine's drain is. The values are those of the annotations of its plan Secret.
type Drain struct {
	// Asked are the options that a drain was asked for with; empty if none was.
	Asked string
	// Done are the options of the drain that is done.
	Done string
	// Error says why the drain does not get on; empty if it does. Waiting says what it waits for while all is well.
	Error, Waiting string
	// Uncordon equals Asked once the end of the drain was asked for. All of them are empty when that is done.
	Uncordon string
}

// Drained tells whether the drain that was asked for is done, and its end was not asked for yet.
func (d Drain) Drained() bool { return d.Asked != "" && d.Done == d.Asked && d.Uncordon == "" }

// detail is the end of a message that the drain is waited for.
func (d Drain) detail() string {
	if d.Waiting == "" {
		return ""
	}
	return ": " + d.Waiting
}

// drainFor returns the options that a machine is to be drained with before its change; empty where it needs no drain.
func (v *view) drainFor(m Machine) string {
	o := v.WorkerDrain
	if m.Server() {
		o = v.ControlPlaneDrain
	}
	switch {
	case m.Change != ChangeDrain, !m.joined(), !o.Enabled && !o.Hooks, m.Node == NodeAbsent, m.Node == NodeUnknown && m.Version == "":
		return ""
	case v.single || m.Node.Unready():
		// There is nowhere to drain to, or no kubelet that would let go of Pods.
		if o.Hooks {
			return o.HooksOnly
		}
		return ""
	}
	return o.Options
}

// waitsForDrain has a node drained before a change that its workloads notice. One that was drained with other options is drained again,
// which is little work where nothing is left on it.
func waitsForDrain(v *view, m Machine) (Decision, bool) {
	wanted := v.drainFor(m)
	switch {
	case wanted == "" || m.Drain.Asked == wanted && m.Drain.Drained():
		return pass()
	case m.Node == NodeUnknown && m.unwell():
		// The cluster cannot be reached to drain anything, perhaps for the very reason that this change removes.
		return pass()
	case m.Node == NodeUnknown:
		return wait(ReasonWaitingForConnection, "A change waits for the connection to the API of the cluster, by which the node is drained first")
	case m.Drain.Uncordon != "":
		return wait(ReasonUncordoning, "A change waits until the node is taken back from its last drain")
	case m.Drain.Asked != wanted:
		return Decision{Drain: wanted, Reason: ReasonDraining, Message: "Draining the node before a change"}, true
	case m.Drain.Error != "":
		return wait(ReasonDrainFailed, "A change waits for the node to be drained: %s", m.Drain.Error)
	}
	return wait(ReasonDraining, "Waiting for the node to be drained before a change%s", m.Drain.detail())
}

// isDrained takes a node back once it works with its change, or needs none any more.
func isDrained(v *view, m Machine) (Decision, bool) {
	switch {
	case !m.draining():
		return pass()
	case v.Paused:
		return wait(ReasonPaused, "The node is taken back from its drain when the cluster is no longer paused")
	case m.Drain.Uncordon == m.Drain.Asked && m.Drain.Error != "":
		return wait(ReasonDrainFailed, "Waiting for the node to be taken back from its drain: %s", m.Drain.Error)
	case m.Drain.Uncordon == m.Drain.Asked:
		return wait(ReasonUncordoning, "Waiting for the node to be taken back from its drain%s", m.Drain.detail())
	}
	return Decision{Uncordon: true, Reason: ReasonUncordoning, Message: "Taking the node back from its drain"}, true
}
