package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReadNode(t *testing.T) {
	type conditions = map[corev1.NodeConditionType]corev1.ConditionStatus
	etcdRole := map[string]string{EtcdRoleLabel: "true"}
	tests := map[string]struct {
		labels, annotations map[string]string
		conditions          conditions
		// reason is that of EtcdIsVoter.
		reason     string
		state      NodeState
		membership Membership
		removal    Removal
	}{
		"a worker":                             {conditions: conditions{corev1.NodeReady: "True"}, state: NodeReady, membership: MemberNone},
		"a Node that is not ready":             {conditions: conditions{corev1.NodeReady: "False"}, state: NodeNotReady, membership: MemberNone},
		"a Node whose kubelet does not report": {conditions: conditions{corev1.NodeReady: "Unknown"}, state: NodeLost, membership: MemberNone},
		"a new Node":                           {state: NodeNotReady, membership: MemberNone},
		"a voter": {labels: etcdRole, conditions: conditions{corev1.NodeReady: "True", EtcdIsVoter: "True"},
			state: NodeReady, membership: MemberVoter},
		"a voter whose Node is lost": {labels: etcdRole, conditions: conditions{corev1.NodeReady: "Unknown", EtcdIsVoter: "True"},
			state: NodeLost, membership: MemberVoter},
		"a voter without label": {conditions: conditions{corev1.NodeReady: "True", EtcdIsVoter: "True"}, state: NodeReady,
			membership: MemberVoter},
		"a learner": {labels: etcdRole, conditions: conditions{corev1.NodeReady: "True", EtcdIsVoter: "False"},
			state: NodeReady, membership: MemberLearner},
		"a Node of a restored snapshot": {labels: etcdRole, conditions: conditions{corev1.NodeReady: "Unknown", EtcdIsVoter: "False"},
			reason: "NotAMember", state: NodeLost, membership: MemberNone},
		"a member without condition": {labels: etcdRole, conditions: conditions{corev1.NodeReady: "True"}, state: NodeReady,
			membership: MemberUnknown},
		"a member whose removal is requested": {labels: etcdRole, annotations: map[string]string{"etcd.rke2.cattle.io/remove": "true"},
			conditions: conditions{EtcdIsVoter: "True"}, state: NodeNotReady, membership: MemberVoter, removal: RemovalRequested},
		"a removed member": {labels: etcdRole, annotations: map[string]string{"etcd.k3s.cattle.io/remove": "true",
			"etcd.k3s.cattle.io/removed-node-name": "a-1"}, conditions: conditions{EtcdIsVoter: "True"},
			state: NodeNotReady, membership: MemberNone},
		"a member with an empty annotation": {labels: etcdRole, annotations: map[string]string{"etcd.k3s.cattle.io/remove": ""},
			conditions: conditions{EtcdIsVoter: "True"}, state: NodeNotReady, membership: MemberVoter},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, Annotations: tc.annotations}}
			node.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1"
			for kind, status := range tc.conditions {
				node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
				if kind == EtcdIsVoter {
					node.Status.Conditions[len(node.Status.Conditions)-1].Reason = tc.reason
				}
			}
			m := Machine{}
			m.ReadNode(node)
			if m.Node != tc.state || m.Membership != tc.membership || m.Removal != tc.removal || m.Version != "v1.36.3+k3s1" {
				t.Errorf("got %+v", m)
			}
		})
	}
	m := Machine{}
	if m.ReadNode(nil); m.Node != NodeAbsent || m.Membership != MemberNone {
		t.Errorf("got %+v", m)
	}
}

// TestNodeOfARestoredSnapshot: a server that did not come back after a restore has a Node, which the snapshot has, and is no member of
// etcd. It does not hold up the others, and its Machine can be deleted.
func TestNodeOfARestoredSnapshot(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	a, b := member("a", "ec"), member("b", "ec")
	a.Init, a.Change = true, ChangeRestart
	b.JoinedTo, b.Progress, b.Underway, b.EtcdProbe, b.ProbesPassed = a.JoinURL, ProgressPending, ChangeMinor, ProbeUnknown, false
	b.Deleting, b.Removal = true, RemovalDue
	b.ReadNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{EtcdRoleLabel: "true"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown},
			{Type: EtcdIsVoter, Status: corev1.ConditionFalse, Reason: "NotAMember", LastHeartbeatTime: metav1.Time{Time: now}}}}})
	in := Inputs{Now: now, Bootstrapped: true, Machines: []Machine{a, b}}
	if w := CheckRemoval(in, "b"); w != (Wait{}) {
		t.Errorf("the removal waits: %+v", w)
	}
	if d := Decide(in).Decisions[0]; !d.Deliver {
		t.Errorf("got %+v", d)
	}
}
