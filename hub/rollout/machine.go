// Package rollout decides which machines of a cluster may be given their new plan now, and why the others wait. It is pure: values in,
// values out, no client, no clock, no randomness. The message that a user reads is the return value of the function that decided.
package rollout

import "time"

// Machine is what rollout knows of a machine.
type Machine struct {
	Name string
	// ID is the machine's own ID, by which a cluster may name its init node.
	ID string

	Etcd, ControlPlane, Worker bool

	// Deleting is set once the machine is to go.
	Deleting bool
	// Identity is set once the machine has its plan Secret.
	Identity bool
	// Unusable says why the machine cannot start or join a cluster yet, such as "has no infrastructure yet"; empty if it can.
	Unusable string
	// Init is set on the machine that is marked as the init node.
	Init bool

	// FailureDomain is where the machine stands, in the words of its infrastructure; empty where that does not tell.
	FailureDomain string

	// JoinURL is where others join this machine; empty until the machine was seen to work.
	JoinURL string
	// JoinedTo is the join URL in the machine's delivered plan.
	JoinedTo string

	// Problem says why no plan can be made for the machine; empty if one can.
	Problem string
	// Change is how the wanted plan differs from the delivered one.
	Change Change
	// Progress is how far the agent is with the delivered plan.
	Progress Progress
	// Underway is how the delivered plan differs from the one that was applied before; none once it is applied itself.
	Underway Change
	// Failure is what is known of the last failure, where Progress is ProgressFailed.
	Failure string
	// CheckedIn is set once the agent has reported anything.
	CheckedIn bool
	// Unhealthy are the probes of the delivered plan that are not known to be healthy, sorted.
	Unhealthy []string
	// Sick are those of Unhealthy that the agent has found unhealthy; it has not looked at the others yet.
	Sick []string
	// ProbesPassed is set once all probes of the delivered plan were healthy at the same time.
	ProbesPassed bool

	// Doing is what the agent says that it is at, in a few words; empty if it says nothing.
	Doing string

	// Version is what the machine's kubelet reports, WantVersion what it should; Version is empty until there is a Node.
	Version, WantVersion string

	// Node is what is known of the machine's Node.
	Node NodeState
	// Membership is the machine's part in etcd, as its Node tells.
	Membership Membership
	// MemberHealth is what etcd's leader says of the machine's member, and MemberCheckedAt when it last said so.
	MemberHealth    MemberHealth
	MemberCheckedAt time.Time
	// EtcdProbe is what the machine's agent says of etcd, and LastSeen when the agent was last seen; zero where that was never recorded.
	EtcdProbe ProbeState
	LastSeen  time.Time
	// Removal is how far the machine is on its way out of etcd.
	Removal Removal
	// Drain is how far the machine's drain is.
	Drain Drain
}

// Server tells whether the machine runs a server of the distribution.
func (m Machine) Server() bool { return m.Etcd || m.ControlPlane }

// Joinable tells whether others may join the machine from now on. A machine that has come to etcd as a learner may fall out of it again, so
// that one has to be a voter first. The init node has nobody to tell that, since nothing serves its cluster's API before.
func (m Machine) Joinable() bool {
	return !m.Deleting && (m.Membership == MemberVoter && (m.Node == NodeReady || m.Working()) || m.Working() && (!m.Etcd || m.Init))
}

// Working tells whether the machine has applied its delivered plan and was healthy with it.
func (m Machine) Working() bool {
	return m.Progress == ProgressApplied && (m.ProbesPassed || len(m.Unhealthy) == 0)
}

// Change is how a wanted plan differs from the delivered one.
type Change string

// The kinds of changes.
const (
	ChangeNone Change = ""
	// ChangeFirst is the first plan of a machine.
	ChangeFirst Change = "first"
	// ChangeMinor restarts nothing and may be delivered at any time.
	ChangeMinor Change = "minor"
	// ChangeRestart restarts the distribution, which workloads do not notice.
	ChangeRestart Change = "restart"
	// ChangeDrain restarts the distribution in a way that workloads may notice, so that the node is drained first if the upgrade strategy
	// asks for it.
	ChangeDrain Change = "drain"
)

// Disruptive tells whether a machine that is changed so is unavailable for a while.
func (c Change) Disruptive() bool { return c == ChangeRestart || c == ChangeDrain }
