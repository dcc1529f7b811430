package rollout

import "time"

// What is known of etcd on a machine comes from etcd itself: from its leader, which asks every member and has the answer written on the
// Node, and from the agent's probe on the machine. Whether the Node is ready says nothing of it: a cluster without a network plugin has no
// ready Node and a healthy etcd.

// MemberHealth is what etcd's leader says of a member.
type MemberHealth string

// The health of members.
const (
	MemberHealthUnknown MemberHealth = ""
	MemberHealthy       MemberHealth = "healthy"
	// MemberUnhealthy means that the member did not answer the leader.
	MemberUnhealthy MemberHealth = "unhealthy"
)

// ProbeState is what an agent says of something that it probes.
type ProbeState string

// The states of probes.
const (
	// ProbeNone means that the delivered plan has no probe for it.
	ProbeNone ProbeState = ""
	// ProbeUnknown means that the agent has not reported since the plan was delivered.
	ProbeUnknown   ProbeState = "unknown"
	ProbeHealthy   ProbeState = "healthy"
	ProbeUnhealthy ProbeState = "unhealthy"
)

const (
	// agentSilence is after how long an agent that was not seen counts as silent. The gateway records every few minutes that it sees one, and
	// agents open their watch again after 10 minutes at the latest.
	agentSilence = 15 * time.Minute
	// memberStale is after how long the word of etcd's leader is too old. k3s and RKE2 renew it every 5 minutes.
	memberStale = 12 * time.Minute
)

// etcdState is what is known of etcd on a machine.
type etcdState int

const (
	// etcdSuspect means that nobody knows: it counts as up where the question is what may be disrupted, and as down where the question is
	// whether a quorum is left.
	etcdSuspect etcdState = iota
	etcdUp
	etcdDown
)

// etcdState weighs the evidence. Old evidence tells nothing, and where the leader and the agent contradict each other, nobody knows.
func (m Machine) etcdState(now time.Time) etcdState {
	probe, member := m.EtcdProbe, m.MemberHealth
	if m.silent(now) && probe != ProbeNone {
		probe = ProbeUnknown
	}
	if now.Sub(m.MemberCheckedAt) > memberStale {
		member = MemberHealthUnknown
	}
	switch {
	case member == MemberUnhealthy && (probe != ProbeHealthy || m.Node == NodeLost):
		return etcdDown
	case probe == ProbeUnhealthy && member != MemberHealthy:
		return etcdDown
	case member == MemberUnhealthy, probe == ProbeUnhealthy, m.Node == NodeLost, m.silent(now), probe == ProbeUnknown:
		return etcdSuspect
	case probe == ProbeHealthy, member == MemberHealthy:
		return etcdUp
	case m.Node == NodeUnknown && m.Working():
		// It has no probe, and there is no API to ask yet, or none that answers.
		return etcdUp
	}
	return etcdSuspect
}

// memberOfEtcd tells whether the machine is part of etcd, so that it is missed when it is away. It may be so although its first plan has failed.
func (m Machine) memberOfEtcd() bool {
	return m.Etcd && m.Progress != ProgressNone && (m.joined() || m.votes())
}

// silent tells whether the machine's agent was not seen for long.
func (m Machine) silent(now time.Time) bool {
	return !m.LastSeen.IsZero() && now.Sub(m.LastSeen) > agentSilence
}

// Lost tells whether the machine seems to be down: its kubelet does not report, or its member does not answer etcd's leader. That is enough
// to prefer another machine, and not enough to disrupt one.
func (m Machine) Lost() bool { return m.Node == NodeLost || m.MemberHealth == MemberUnhealthy }

// disrupted tells whether the hub has given the machine a change that restarts its etcd, and etcd was not seen to be up since.
func (m Machine) disrupted(now time.Time) bool {
	switch {
	case !m.memberOfEtcd():
		return false
	case m.Progress != ProgressApplied:
		return m.Underway.Disruptive() || m.Underway == ChangeFirst
	}
	return !m.ProbesPassed && m.etcdState(now) != etcdUp
}
