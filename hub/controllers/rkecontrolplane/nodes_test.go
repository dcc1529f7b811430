package rkecontrolplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// etcdNode is a Node as k3s and RKE2 keep it on an etcd member.
func etcdNode(name string, voter corev1.ConditionStatus) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{rollout.EtcdRoleLabel: "true"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: rollout.EtcdIsVoter, Status: voter},
		}},
	}
}

// Nodes tell of etcd and, where nobody else does, of addresses. A cluster that cannot be asked leaves both open.
func TestReadNodes(t *testing.T) {
	tells, silent := etcdNode("tells", corev1.ConditionTrue), etcdNode("silent", corev1.ConditionFalse)
	tells.Spec.ProviderID, silent.Spec.ProviderID = "lab://a", "lab://b"
	tells.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
		{Type: corev1.NodeHostName, Address: "tells"}}
	lost := etcdNode("lost", corev1.ConditionTrue)
	remote := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(&tells, &silent, &lost).Build()
	key := client.ObjectKey{Namespace: "fleet", Name: "c"}
	newScope := func() *scope {
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
			Name: key.Name}}}
		s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		for _, name := range []string{"a", "b", "c"} {
			m := server(name, rollout.ProgressApplied, rollout.ChangeNone, "")
			m.machine.Spec.ProviderID = "lab://" + name
			s.machines = append(s.machines, m)
		}
		s.machines[1].reported = machinestate.Addresses{Internal: []string{"10.0.0.22"}}
		return s
	}
	s := newScope()
	r := &Reconciler{ClusterCache: clustercache.NewFakeClusterCache(remote, key, controllerName+"-nodes")}
	r.readNodes(t.Context(), s)
	for i, want := range []rollout.Membership{rollout.MemberVoter, rollout.MemberLearner, rollout.MemberNone} {
		if got := s.machines[i].state.Membership; got != want {
			t.Errorf("%s is %q, want %q", s.machines[i].machine.Name, got, want)
		}
	}
	if diff := cmp.Diff([]string{"10.0.0.1"}, s.machines[0].addresses()); diff != "" {
		t.Errorf("the Node's addresses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.0.0.22"}, s.machines[1].addresses()); diff != "" {
		t.Errorf("the infrastructure's addresses (-want +got):\n%s", diff)
	}
	if len(s.orphanedMembers) != 1 || s.orphanedMembers[0].Node != "lost" {
		t.Errorf("orphaned members are %+v", s.orphanedMembers)
	}

	s = newScope()
	r.ClusterCache = clustercache.NewFakeEmptyClusterCache()
	r.readNodes(t.Context(), s)
	if got := s.machines[0].state; got.Node != rollout.NodeUnknown || got.Membership != rollout.MemberUnknown {
		t.Errorf("without a connection: %q, %q", got.Node, got.Membership)
	}
}

func TestNodeChanged(t *testing.T) {
	before, beat, promoted := etcdNode("a", corev1.ConditionFalse), etcdNode("a", corev1.ConditionFalse), etcdNode("a", corev1.ConditionTrue)
	beat.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	if nodeChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &beat}) {
		t.Error("a heartbeat is taken for a change")
	}
	if !nodeChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &promoted}) {
		t.Error("a promotion is not taken for a change")
	}
	moved := etcdNode("a", corev1.ConditionFalse)
	moved.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
	if !nodeChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &moved}) {
		t.Error("another address is not taken for a change")
	}
	named := etcdNode("a", corev1.ConditionFalse)
	metav1.SetMetaDataAnnotation(&named.ObjectMeta, "etcd.k3s.cattle.io/node-name", "a-12345678")
	if !nodeChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &named}) {
		t.Error("the name of the member is not taken for a change")
	}
}
