package rollout

import (
	"fmt"
	"slices"

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
	NodeAbsent   NodeState = "absent"
	NodeReady    NodeState = "ready"
	NodeNotReady NodeState = "not ready"
)

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
}

// What k3s and RKE2 write on the Nodes of etcd members.
const (
	// EtcdRoleLabel is set once etcd has been started on a Node.
	EtcdRoleLabel = "node-role.kubernetes.io/etcd"
	// EtcdIsVoter is the condition that tells learners from voters.
	EtcdIsVoter corev1.NodeConditionType = "EtcdIsVoter"
)

// ReadNode takes over what a machine's Node tells; nil where the cluster has none for it. It is not called while the cluster cannot be
// asked.
func (m *Machine) ReadNode(node *corev1.Node) {
	if node == nil {
		m.Node, m.Membership = NodeAbsent, MemberNone
		return
	}
	m.Node, m.Membership, m.Version = StateOf(node), MembershipOf(node), node.Status.NodeInfo.KubeletVersion
	if m.Membership != MemberNone && annotated(node, rkev1.EtcdRemoveAnnotationFormat) == "true" {
		m.Removal = RemovalAsked
	}
}

// StateOf tells whether a Node is ready. A status of Unknown is set by the cluster when a kubelet has not reported for its grace period, so
// that the machine is as good as gone.
func StateOf(node *corev1.Node) NodeState {
	if status, _ := condition(node, corev1.NodeReady); status == corev1.ConditionTrue {
		return NodeReady
	}
	return NodeNotReady
}

// MembershipOf tells what part a Node has in etcd.
func MembershipOf(node *corev1.Node) Membership {
	if annotated(node, rkev1.EtcdRemovedNodeNameAnnotationFormat) != "" {
		return MemberNone
	}
	status, told := condition(node, EtcdIsVoter)
	_, labelled := node.Labels[EtcdRoleLabel]
	switch {
	case status == corev1.ConditionTrue:
		return MemberVoter
	case status == corev1.ConditionFalse:
		return MemberLearner
	case told || labelled:
		return MemberUnknown
	}
	return MemberNone
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

func condition(node *corev1.Node, t corev1.NodeConditionType) (corev1.ConditionStatus, bool) {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
	if i < 0 {
		return "", false
	}
	return node.Status.Conditions[i].Status, true
}
