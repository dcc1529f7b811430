package rollout

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/release"
)

// NodeState is what is known of a Node.
type NodeState string

// The states of Nodes.
const (
	// NodeUnknown means that nobody could be asked: the cluster's API is not reached, or the kubelet has not reported for long.
	NodeUnknown NodeState = ""
	// NodeAbsent means that the cluster has no Node for the machine.
	NodeAbsent NodeState = "absent"
	NodeReady  NodeState = "ready"
	// NodeNotReady means that the kubelet reports, and says that it is not ready, such as while the cluster has no network plugin.
	NodeNotReady NodeState = "not ready"
	// NodeLost means that the kubelet has stopped to report, so that the machine may be down.
	NodeLost NodeState = "lost"
)

// Unready tells whether a Node is there and runs no new Pods.
func (s NodeState) Unready() bool { return s == NodeNotReady || s == NodeLost }

// Membership is a machine's part in etcd.
type Membership string

// The parts that a machine can have in etcd.
const (
	// MemberUnknown means that nobody could be asked, or that the Node does not tell.
	MemberUnknown Membership = ""
	// MemberNone means that the machine is no member: not yet, or no longer.
	MemberNone Membership = "none"
	// MemberLearner is a member that receives data and does not vote yet.
	MemberLearner Membership = "learner"
	MemberVoter   Membership = "voter"
)

// Removal is how far a machine is on its way out of etcd.
type Removal string

// The steps of a removal. A machine that has been removed has MemberNone.
const (
	RemovalNone Removal = ""
	// RemovalDue means that everything else that comes before is done: the machine goes as soon as MayRemove allows it.
	RemovalDue Removal = "due"
	// RemovalAsked means that the cluster was asked to remove the member.
	RemovalAsked Removal = "asked"
)

// Member is a member of etcd that has no Machine any more. It counts for the quorum until somebody removes it.
type Member struct {
	// Node is the name of its Node.
	Node       string
	State      NodeState
	Membership Membership
	// Health and CheckedAt are as in Machine.
	Health    MemberHealth
	CheckedAt time.Time
}

// etcdState is that of a machine without an agent.
func (m Member) etcdState(now time.Time) etcdState {
	return Machine{Node: m.State, Membership: m.Membership, MemberHealth: m.Health, MemberCheckedAt: m.CheckedAt}.etcdState(now)
}

// What k3s and RKE2 write on the Nodes of etcd members.
const (
	// EtcdRoleLabel is set once etcd has been started on a Node.
	EtcdRoleLabel = "node-role.kubernetes.io/etcd"
	// EtcdIsVoter is the condition that tells learners from voters.
	EtcdIsVoter corev1.NodeConditionType = "EtcdIsVoter"
	// reasonMemberUnhealthy is the reason of EtcdIsVoter where the member, voter or learner, does not answer etcd's leader.
	reasonMemberUnhealthy = "Unhealthy"
)

// ReadNode takes over what a machine's Node tells; nil where the cluster has none for it. It is not called while the cluster cannot be
// asked.
func (m *Machine) ReadNode(node *corev1.Node) {
	if node == nil {
		m.Node, m.Membership = NodeAbsent, MemberNone
		return
	}
	m.Node, m.Membership, m.Version = StateOf(node), MembershipOf(node), node.Status.NodeInfo.KubeletVersion
	m.MemberHealth, m.MemberCheckedAt = MemberHealthOf(node)
	if m.Membership != MemberNone && annotated(node, rkev1.EtcdRemoveAnnotationFormat) == "true" {
		m.Removal = RemovalAsked
	}
}

// NodeDiffers tells whether a later state of the machine's Node tells another thing than this one. That the word of etcd's leader is renewed
// is no news, unless it was too old before.
func (m Machine) NodeDiffers(later Machine) bool {
	return m.Node != later.Node || m.Membership != later.Membership || m.Removal != later.Removal || m.MemberHealth != later.MemberHealth ||
		later.MemberCheckedAt.Sub(m.MemberCheckedAt) > memberStale
}

// StateOf tells whether a Node is ready. A status of Unknown is set by the cluster when a kubelet has not reported for its grace period.
func StateOf(node *corev1.Node) NodeState {
	switch c := condition(node, corev1.NodeReady); c.Status {
	case corev1.ConditionTrue:
		return NodeReady
	case corev1.ConditionUnknown:
		return NodeLost
	}
	return NodeNotReady
}

// MembershipOf tells what part a Node has in etcd. Of a member that does not answer, it is not known whether it votes.
func MembershipOf(node *corev1.Node) Membership {
	if annotated(node, rkev1.EtcdRemovedNodeNameAnnotationFormat) != "" {
		return MemberNone
	}
	c := condition(node, EtcdIsVoter)
	_, labelled := node.Labels[EtcdRoleLabel]
	switch {
	case c.Status == corev1.ConditionTrue:
		return MemberVoter
	case c.Reason == reasonMemberUnhealthy:
		return MemberUnknown
	case c.Status == corev1.ConditionFalse:
		return MemberLearner
	case c.Type != "" || labelled:
		return MemberUnknown
	}
	return MemberNone
}

// MemberHealthOf tells what etcd's leader says of the member on a Node, and when it last said so. k3s and RKE2 ask each member every 15
// seconds, write a change at once, and otherwise the time of the last answer every 5 minutes.
func MemberHealthOf(node *corev1.Node) (MemberHealth, time.Time) {
	c := condition(node, EtcdIsVoter)
	switch {
	case c.Reason == reasonMemberUnhealthy:
		return MemberUnhealthy, c.LastHeartbeatTime.Time
	case c.Status == corev1.ConditionTrue:
		return MemberHealthy, c.LastHeartbeatTime.Time
	}
	return MemberHealthUnknown, time.Time{}
}

// annotated returns the value of an annotation whose key depends on the distribution.
func annotated(node *corev1.Node, format string) string {
	for _, runtime := range []string{release.K3s, release.RKE2} {
		if value := node.Annotations[fmt.Sprintf(format, runtime)]; value != "" {
			return value
		}
	}
	return ""
}

// condition returns a condition of a Node; the zero value where it has none of the type.
func condition(node *corev1.Node, t corev1.NodeConditionType) corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return node.Status.Conditions[i]
}
