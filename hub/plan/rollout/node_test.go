package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReadNode(t *testing.T) {
	type conditions = map[corev1.NodeConditionType]corev1.ConditionStatus
	etcdRole := map[string]string{EtcdRoleLabel: "true"}
	tests := map[string]struct {
		labels, annotations map[string]string
		conditions          conditions
		state               NodeState
		membership          Membership
		removal             Removal
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
