package rollout

import (
	"slices"
	"strings"
	"time"
)

// The predicates of a machine. Most combine Progress with Underway (what the delivered plan changes) and what is known of the Node:
//
//	predicate      Progress                        and
//	changing       pending, applying               the delivered plan is the first one, or restarts the distribution
//	bootstrapping  pending, applying               the delivered plan is the first one
//	               applied                         starting, and never a member before
//	starting       applied                         never healthy with this plan
//	joined         any but none                    neither the wanted nor the delivered plan is the first one
//	NeverJoined    any                             no plan; or no Node ever, and the first plan not applied or no probe healthy
//	unavailable    joined                          not applied, drained, Node not ready, or a probe is not healthy
//	takenDown      joined                          changing or drained, and not only because the machine was down before
//	joining        bootstrapping, or first change  not held back by a problem, and the Node is not lost
//	verified       applied                         nothing further is wanted, and healthy with this plan, undrained, right version
//	unwell         failed, applied                 a probe is unhealthy, or the Node is not ready: a change may be the cure
//	replacingPods  applied                         RKE2, restarted, and the probes have passed less than 90 seconds ago
//
// Those of etcd are in etcdstate.go (what is known of a member) and etcd.go (what a member is going through).

// The probes of plans for etcd and the API server. k3s has no etcd probe: etcd runs in the same process as the kubelet.
const (
	probeEtcd      = "etcd"
	probeKubelet   = "kubelet"
	probeAPIServer = "kube-apiserver"
)

// healthy reports whether all probes of the delivered plan are known to be healthy.
func (m *Machine) healthy() bool { return len(m.Unhealthy)+len(m.HealthUnknown) == 0 }

// changing reports whether the machine has yet to finish a plan that starts or restarts its distribution.
func (m *Machine) changing() bool {
	return (m.Progress == ProgressPending || m.Progress == ProgressApplying) && (m.Underway.Disruptive() || m.Underway == ChangeFirst)
}

// takenDown reports whether the machine is unavailable because of a change. One that was down before it took the change does not count,
// unless it has etcd, whose state before is not known.
func (m *Machine) takenDown() bool {
	return m.joined() && (m.changing() || m.draining()) && (m.Etcd || !m.Node.Unready() || m.Progress != ProgressPending)
}

// draining reports whether the machine is being drained for a change, is drained, or has not been uncordoned since.
func (m *Machine) draining() bool { return m.Drain.Requested != "" }

// starting reports whether the machine has applied its plan and was never healthy with it.
func (m *Machine) starting() bool {
	return m.Progress == ProgressApplied && !m.ProbesPassed && !m.healthy()
}

// staticPodsTime is for how long after the probes of a server of RKE2 have passed they may be about etcd and API server from before its
// restart. These are static Pods, which outlive the process of RKE2. It ends those that have changed up to 20 seconds after its kubelet has
// started, and a probe that was healthy is reported as unhealthy only when it has failed five times, one every 5 seconds. The published
// installer image of RKE2 does not wait until the earlier process has ended, whose kubelet may answer its first probe, too.
const staticPodsTime = 90 * time.Second

// replacingPods reports whether the machine may have yet to replace its static Pods, although its probes have passed: it counts as
// unavailable, so that a change with which etcd or API server do not start ends at one server.
func (m *Machine) replacingPods(now time.Time) bool {
	return m.Progress == ProgressApplied && !m.ProbesPassedAt.IsZero() && now.Sub(m.ProbesPassedAt).Abs() < staticPodsTime
}

// PodsReplaced reports whether the probes have passed with the delivered plan, and that so long ago that they are about what runs with it.
func (m Machine) PodsReplaced(now time.Time) bool {
	return m.Progress == ProgressApplied && m.ProbesPassed && !m.replacingPods(now)
}

// unwell reports whether something is wrong with the machine that a change may cure.
func (m *Machine) unwell() bool {
	return m.Progress == ProgressFailed || m.Progress == ProgressApplied && len(m.Unhealthy) > 0 || m.joined() && m.Node.Unready()
}

// mayBlockAPI reports whether this machine may be why the cluster's API does not answer. A machine with etcd only may have no probe for it;
// there, a failed plan is the only sign.
func (m *Machine) mayBlockAPI() bool {
	return m.Progress == ProgressFailed && !m.ControlPlane ||
		slices.ContainsFunc(m.Unhealthy, func(p string) bool { return p == probeEtcd || p == probeKubelet || p == probeAPIServer })
}

// bootstrapping reports whether the machine is starting for the first time.
func (m *Machine) bootstrapping() bool {
	return (m.Progress == ProgressPending || m.Progress == ProgressApplying) && m.Underway == ChangeFirst || m.starting() && !m.known()
}

// joining reports whether the machine will become part of the cluster without further help, unless it fails.
func (m *Machine) joining() bool {
	switch {
	case m.Change == ChangeFirst:
		return m.Unusable == "" && m.Problem == ""
	case m.Node == NodeLost || m.Node == NodeNotReady && !m.Etcd:
		return false
	}
	return m.bootstrapping() || m.Etcd && m.joiningEtcd()
}

// joined reports whether the machine has been part of the cluster, so that its absence matters.
func (m *Machine) joined() bool {
	return m.Progress != ProgressNone && m.Change != ChangeFirst && m.Underway != ChangeFirst && (!m.starting() || m.known())
}

// known reports whether the cluster ever had a Node for the machine, or others have joined it.
func (m *Machine) known() bool {
	return m.JoinURL != "" || m.Version != "" || m.Node == NodeReady || m.Node.Unready()
}

// NeverJoined reports whether nothing shows that the machine was ever part of the cluster: it was given no plan, has not applied its first
// one, or was never healthy with it and the cluster has no Node for it.
func (m Machine) NeverJoined() bool {
	return m.Progress == ProgressNone ||
		!m.known() && (m.Underway == ChangeFirst || m.starting() && m.Node == NodeAbsent)
}

// unavailable reports whether the machine may not be serving.
func (m *Machine) unavailable() bool {
	return m.joined() && (m.Progress != ProgressApplied || m.draining() || m.Node.Unready() || !m.healthy())
}

// verified reports whether the machine has everything that is wanted and was healthy with it.
func (m *Machine) verified() bool {
	return m.Change == ChangeNone && m.Progress == ProgressApplied && !m.starting() && !m.draining() && !m.wrongVersion()
}

// wrongVersion reports whether the machine runs another version of Kubernetes than wanted. Without a Node, its plan is the evidence.
func (m *Machine) wrongVersion() bool {
	if m.Version == "" || m.Node == NodeUnknown {
		return m.joined() && (m.Change.Disruptive() || m.changing())
	}
	return m.WantVersion != "" && !sameKubernetes(m.Version, m.WantVersion)
}

// sameKubernetes compares versions without their build metadata, which k3s and RKE2 do not always report alike.
func sameKubernetes(a, b string) bool {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	return a == b
}
