package controlplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
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

func TestNodeChanged(t *testing.T) {
	before, beat, promoted := etcdNode("a", corev1.ConditionFalse), etcdNode("a", corev1.ConditionFalse), etcdNode("a", corev1.ConditionTrue)
	beat.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	if nodeChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &beat}) {
		t.Error("a heartbeat is taken for a change")
	}
	if !nodeChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &promoted}) {
		t.Error("a promotion is not taken for a change")
	}
}

func TestDrainOptions(t *testing.T) {
	got := drainOptions(rkev1.DrainOptions{Enabled: true, Timeout: 60, PostDrainHooks: []rkev1.DrainHook{{Annotation: "hooks.example.com/done"}}})
	want := rollout.DrainOptions{
		Enabled: true, Hooks: true,
		Options:   `{"enabled":true,"timeout":60,"postDrainHooks":[{"annotation":"hooks.example.com/done"}]}`,
		HooksOnly: `{"timeout":60,"postDrainHooks":[{"annotation":"hooks.example.com/done"}]}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := drainOptions(rkev1.DrainOptions{PreDrainHooks: []rkev1.DrainHook{{}}}); got.Enabled || got.Hooks {
		t.Errorf("an empty hook counts: %+v", got)
	}
}
