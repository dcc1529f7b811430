package rollout

import "time"

// The state of etcd on a machine comes from etcd itself: from its leader, which asks every member and has the answer written on the Node,
// and from the agent's probe on the machine. The Node's readiness does not matter: without a network plugin no Node is ready and etcd is
// healthy. docs/adr/0015-evidence-of-etcd.md has the reasons.

// MemberHealth is what etcd's leader reports of a member.
type MemberHealth string

// The health of members.
const (
	// MemberHealthUnknown means that nothing is reported of the member.
	MemberHealthUnknown MemberHealth = ""
	// MemberHealthy means that the member answered the leader.
	MemberHealthy MemberHealth = "healthy"
	// MemberUnhealthy means that the member did not answer the leader.
	MemberUnhealthy MemberHealth = "unhealthy"
)

// ProbeState is what an agent reports of a probe.
type ProbeState string

// The states of probes.
const (
	// ProbeNone means that the delivered plan has no such probe.
	ProbeNone ProbeState = ""
	// ProbeUnknown means that the agent has not reported since the plan was delivered.
	ProbeUnknown ProbeState = "unknown"
	// ProbeHealthy means that the probe succeeded as often as it has to.
	ProbeHealthy ProbeState = "healthy"
	// ProbeUnhealthy means that it did not.
	ProbeUnhealthy ProbeState = "unhealthy"
)

const (
	// agentTimeout is how long after it was last seen an agent counts as unreachable. The gateway records every few minutes that it sees an
	// agent, and agents open their watch again after at most 10 minutes.
	agentTimeout = 15 * time.Minute
	// memberHealthTTL is how long a report of etcd's leader is valid. k3s and RKE2 renew it every 5 minutes.
	memberHealthTTL = 12 * time.Minute
)

// etcdState is what is known of etcd on a machine.
type etcdState int

const (
	// etcdUnknown counts as up where the question is what may be disrupted, and as down where it is whether a quorum is left.
	etcdUnknown etcdState = iota
	etcdUp
	etcdDown
)

// etcdState combines what leader and agent report. Outdated reports do not count; where both contradict each other, the state is unknown:
//
//	leader      agent's probe     other                      state
//	unhealthy   not healthy                                  down
//	unhealthy   healthy           Node lost                  down
//	unhealthy   healthy                                      unknown
//	not healthy unhealthy                                    down
//	healthy     unhealthy                                    unknown
//	any         unknown           or agent or Node lost      unknown
//	any         healthy                                      up
//	healthy     none                                         up
//	unknown     none              Node unknown, Working      up (no API to ask yet)
//	unknown     none                                         unknown
func (m *Machine) etcdState(now time.Time) etcdState {
	probe, member := m.EtcdProbe, m.MemberHealth
	if m.agentUnreachable(now) && probe != ProbeNone {
		probe = ProbeUnknown
	}
	if now.Sub(m.MemberCheckedAt) > memberHealthTTL {
		member = MemberHealthUnknown
	}
	switch {
	case member == MemberUnhealthy && (probe != ProbeHealthy || m.Node == NodeLost):
		return etcdDown
	case probe == ProbeUnhealthy && member != MemberHealthy:
		return etcdDown
	case member == MemberUnhealthy, probe == ProbeUnhealthy, m.Node == NodeLost, m.agentUnreachable(now), probe == ProbeUnknown:
		return etcdUnknown
	case probe == ProbeHealthy, member == MemberHealthy, m.Node == NodeUnknown && m.Working():
		return etcdUp
	}
	return etcdUnknown
}

// etcdMember reports whether the machine is part of etcd, so that its absence matters. That may be so although its first plan has failed.
func (m *Machine) etcdMember() bool {
	return m.Etcd && m.Progress != ProgressNone && (m.joined() || m.votes())
}

// agentUnreachable reports whether the machine's agent was not seen for agentTimeout. A time that is yet to come was recorded while the
// hub's clock was ahead, and says nothing: the gateway replaces it at the next request of an agent.
func (m *Machine) agentUnreachable(now time.Time) bool {
	return !m.LastSeen.IsZero() && now.Sub(m.LastSeen).Abs() > agentTimeout
}

// Expires returns when to decide again although nothing has changed: when the next of what is known of the machines counts no more. 0 is
// never.
func Expires(machines []Machine, now time.Time) time.Duration {
	next := time.Duration(0)
	for i := range machines {
		m := &machines[i]
		for _, end := range []time.Time{
			m.LastSeen.Add(agentTimeout), m.MemberCheckedAt.Add(memberHealthTTL), m.ProbesPassedAt.Add(staticPodsTime),
		} {
			// It counts at its end.
			if left := end.Sub(now) + time.Second; left > 0 && (next == 0 || left < next) {
				next = left
			}
		}
	}
	return next
}

// Lost reports whether the machine seems to be down: its kubelet does not report, or its member does not answer etcd's leader. That is
// enough to prefer another machine, and not enough to disrupt one.
func (m Machine) Lost() bool { return m.Node == NodeLost || m.MemberHealth == MemberUnhealthy }

// restartUnverified reports whether the hub has given the machine a change that restarts its etcd, and etcd was not seen up since.
func (m *Machine) restartUnverified(now time.Time) bool {
	switch {
	case !m.etcdMember():
		return false
	case m.Progress != ProgressApplied:
		return m.Underway.Disruptive() || m.Underway == ChangeFirst
	}
	return !m.ProbesPassed && m.etcdState(now) != etcdUp
}
