package pool

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestAutoscaledPool: an autoscaler knows the Nodes of a pool that has none yet. What the user says of them comes first.
func TestAutoscaledPool(t *testing.T) {
	const labels, taints = "capacity.cluster-autoscaler.kubernetes.io/labels", "capacity.cluster-autoscaler.kubernetes.io/taints"
	p := testPool()
	p.Labels = map[string]string{"team": "a", "rke.cattle.io/etcd-role": "no", "gpu": "yes"}
	p.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}, {Key: "l", Effect: corev1.TaintEffectNoExecute}}
	if got := deploymentOf(t, testCluster(), p).Annotations; got[labels] != "" || got[taints] != "" {
		t.Errorf("without an autoscaler: %v", got)
	}
	p.AutoscalingMinSize, p.AutoscalingMaxSize = ptr.To[int32](0), ptr.To[int32](5)
	if got := deploymentOf(t, testCluster(), p).Annotations; got[labels] != "gpu=yes,team=a" || got[taints] != "k=v:NoSchedule,l=:NoExecute" {
		t.Errorf("got %v", got)
	}
	p.MachineDeploymentAnnotations = map[string]string{taints: ""}
	if got, set := deploymentOf(t, testCluster(), p).Annotations[taints]; got != "" || !set {
		t.Errorf("what the user has written is now %q", got)
	}
}
