package rollout

import "slices"

// The probes that tell whether etcd runs on a machine, and whether the cluster's API does. k3s has none of its own for etcd, which lives and
// dies there with the kubelet.
const (
	probeEtcd      = "etcd"
	probeKubelet   = "kubelet"
	probeAPIServer = "kube-apiserver"
)

// changing tells whether the machine was given a plan that starts or restarts its distribution, and is not through with it.
func (m Machine) changing() bool {
	return (m.Progress == ProgressPending || m.Progress == ProgressApplying) && (m.Underway.Disruptive() || m.Underway == ChangeFirst)
}

// takenAway tells whether the machine is unavailable for the sake of a change. One that was away before, and has not taken its change, is
// not: it may never do so. Of a member of etcd nobody knows whether it was away.
func (m Machine) takenAway() bool {
	return m.joined() && (m.changing() || m.draining()) && (m.Etcd || !m.Node.Unready() || m.Progress != ProgressPending)
}

// draining tells whether the machine is set aside for a change, or was and is not taken back yet.
func (m Machine) draining() bool { return m.Drain.Asked != "" }

// starting tells whether the machine has applied its plan and was never healthy with it.
func (m Machine) starting() bool {
	return m.Progress == ProgressApplied && !m.ProbesPassed && len(m.Unhealthy) > 0
}

// unwell tells whether something is wrong with the machine, so that a change may be what heals it.
func (m Machine) unwell() bool {
	return m.Progress == ProgressFailed || m.Progress == ProgressApplied && len(m.Sick) > 0 || m.joined() && m.Node.Unready()
}

// broken tells whether what is wrong with the machine may be why the cluster's API does not answer. Where etcd runs alone there may be no
// probe to tell, and then a plan that has failed is all that is known.
func (m Machine) broken() bool {
	return m.Progress == ProgressFailed && !m.ControlPlane ||
		slices.ContainsFunc(m.Sick, func(p string) bool { return p == probeEtcd || p == probeKubelet || p == probeAPIServer })
}

// arriving tells whether the machine is on its way into the cluster for the first time.
func (m Machine) arriving() bool {
	return (m.Progress == ProgressPending || m.Progress == ProgressApplying) && m.Underway == ChangeFirst || m.starting() && !m.seen()
}

// joined tells whether the machine has been part of the cluster, so that it is missed when it is away.
func (m Machine) joined() bool {
	return m.Progress != ProgressNone && m.Change != ChangeFirst && m.Underway != ChangeFirst && (!m.starting() || m.seen())
}

// seen tells whether the cluster ever had a Node of the machine, or others have joined it.
func (m Machine) seen() bool {
	return m.JoinURL != "" || m.Version != "" || m.Node == NodeReady || m.Node.Unready()
}

// unavailable tells whether the machine may not be doing its part.
func (m Machine) unavailable() bool {
	return m.joined() && (m.Progress != ProgressApplied || m.draining() || m.Node.Unready() || len(m.Unhealthy) > 0)
}

// settled tells whether the machine has taken its last change well: it has what is wanted, and was healthy with it.
func (m Machine) settled() bool {
	return m.Change == ChangeNone && m.Progress == ProgressApplied && !m.starting() && !m.draining() && !m.lags()
}

// lags tells whether the machine runs another version of Kubernetes than it should. Where its Node cannot be seen, its plan tells.
func (m Machine) lags() bool {
	if m.Version == "" || m.Node == NodeUnknown {
		return m.joined() && (m.Change.Disruptive() || m.changing())
	}
	return m.WantVersion != "" && !sameKubernetes(m.Version, m.WantVersion)
}
