package rollout

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
)

// NodeState is the state of a machine's Node.
type NodeState string

// The states of Nodes.
const (
	// NodeUnknown means that the cluster's API could not be asked.
	NodeUnknown NodeState = ""
	// NodeAbsent means that the cluster has no Node for the machine.
	NodeAbsent NodeState = "absent"
	// NodeReady means that the kubelet reports that it is ready.
	NodeReady NodeState = "ready"
	// NodeNotReady means that the kubelet reports that it is not ready, such as without a network plugin.
	NodeNotReady NodeState = "not ready"
	// NodeLost means that the kubelet has stopped reporting (Ready is Unknown), so that the machine may be down.
	NodeLost NodeState = "lost"
)

// Unready reports whether a Node exists and runs no new Pods.
func (s NodeState) Unready() bool { return s == NodeNotReady || s == NodeLost }

// Membership is a machine's part in etcd.
type Membership string

// The parts that a machine can have in etcd.
const (
	// MemberUnknown means that the API could not be asked, or that the Node does not say.
	MemberUnknown Membership = ""
	// MemberNone means that the machine is no member: not yet, or not any more.
	MemberNone Membership = "none"
	// MemberLearner is a member that receives data and does not vote yet.
	MemberLearner Membership = "learner"
	// MemberVoter is a member that votes.
	MemberVoter Membership = "voter"
)

// Removal is the state of the removal of a machine's etcd member. A machine whose member was removed has MemberNone.
type Removal string

// The states of a removal.
const (
	// RemovalNone means that the member stays.
	RemovalNone Removal = ""
	// RemovalDue means that Cluster API waits for the hub's pre-terminate hook only: the member is removed once CheckRemoval allows it.
	RemovalDue Removal = "due"
	// RemovalRequested means that the distribution was asked to remove the member, by an annotation of the Node.
	RemovalRequested Removal = "requested"
)

// Member is a member of etcd that has no Machine. It counts for the quorum until somebody removes it.
type Member struct {
	// Node is the name of its Node.
	Node string
	// State of that Node.
	State NodeState
	// Membership in etcd, from the Node.
	Membership Membership
	// Health is what etcd's leader reports of the member.
	Health MemberHealth
	// CheckedAt is when it last did.
	CheckedAt time.Time
}

// etcdState is that of a machine without an agent.
func (m Member) etcdState(now time.Time) etcdState {
	like := Machine{Node: m.State, Membership: m.Membership, MemberHealth: m.Health, MemberCheckedAt: m.CheckedAt}
	return like.etcdState(now)
}

// What k3s and RKE2 write on the Nodes of etcd members.
const (
	// EtcdRoleLabel is set once etcd has been started on a Node.
	EtcdRoleLabel = "node-role.kubernetes.io/etcd"
	// EtcdIsVoter is the condition that tells learners from voters.
	EtcdIsVoter corev1.NodeConditionType = "EtcdIsVoter"
	// reasonMemberUnhealthy is the reason of EtcdIsVoter where the member, voter or learner, does not answer etcd's leader.
	reasonMemberUnhealthy = "Unhealthy"
	// reasonNotAMember is the reason of EtcdIsVoter where etcd has no member of the Node: one that a restored snapshot has, or that left.
	// Releases before January 2024 leave the condition as it was.
	reasonNotAMember = "NotAMember"
)

// ReadNode sets the fields that come from the machine's Node; nil where the cluster has none for it. It is not called while the cluster
// cannot be asked.
func (m *Machine) ReadNode(node *corev1.Node) {
	if node == nil {
		m.Node, m.Membership = NodeAbsent, MemberNone
		return
	}
	m.Node, m.Membership, m.Version = StateOf(node), MembershipOf(node), node.Status.NodeInfo.KubeletVersion
	m.MemberHealth, m.MemberCheckedAt = MemberHealthOf(node)
	if m.Membership != MemberNone && annotation(node, rkev1.EtcdRemoveAnnotationFormat) == "true" {
		m.Removal = RemovalRequested
	}
}

// NodeDiffers reports whether a later state of the Node may change a decision. A report of etcd's leader that is only renewed does not,
// unless the earlier one had expired.
func (m Machine) NodeDiffers(later Machine) bool {
	return m.Node != later.Node || m.Membership != later.Membership || m.Removal != later.Removal || m.MemberHealth != later.MemberHealth ||
		later.MemberCheckedAt.Sub(m.MemberCheckedAt) > memberHealthTTL
}

// StateOf returns the state of a Node that exists. The node lifecycle controller sets Ready to Unknown when the kubelet has not reported
// for its grace period.
func StateOf(node *corev1.Node) NodeState {
	switch c := condition(node, corev1.NodeReady); c.Status {
	case corev1.ConditionTrue:
		return NodeReady
	case corev1.ConditionUnknown:
		return NodeLost
	}
	return NodeNotReady
}

// MembershipOf returns a Node's part in etcd. Whether a member that does not answer votes is unknown.
func MembershipOf(node *corev1.Node) Membership {
	if annotation(node, rkev1.EtcdRemovedNodeNameAnnotationFormat) != "" {
		return MemberNone
	}
	c := condition(node, EtcdIsVoter)
	_, labelled := node.Labels[EtcdRoleLabel]
	switch {
	case c.Status == corev1.ConditionTrue:
		return MemberVoter
	case c.Reason == reasonMemberUnhealthy:
		return MemberUnknown
	case c.Reason == reasonNotAMember:
		return MemberNone
	case c.Status == corev1.ConditionFalse:
		return MemberLearner
	case c.Type != "" || labelled:
		return MemberUnknown
	}
	return MemberNone
}

// MemberNameOf returns the name of the etcd member of a Node; empty if the Node does not name one.
func MemberNameOf(node *corev1.Node) string {
	return annotation(node, rkev1.EtcdMemberNameAnnotationFormat)
}

// MemberHealthOf returns what etcd's leader reports of the member on a Node, and when it last did. k3s and RKE2 ask each member every 15
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

// annotation returns the value of an annotation whose key contains the name of the distribution.
func annotation(node *corev1.Node, format string) string {
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
