package pool

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
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
	if got := deploymentOf(t, testCluster(), p).Annotations; got[labels] != "gpu=yes,node-role.kubernetes.io/worker=true,team=a" ||
		got[taints] != "k=v:NoSchedule,l=:NoExecute" {
		t.Errorf("got %v", got)
	}
	p.WorkerRole = false
	if got := deploymentOf(t, testCluster(), p).Annotations[labels]; got != "gpu=yes,team=a" {
		t.Errorf("Nodes that are no workers have the labels %s", got)
	}
	p.MachineDeploymentAnnotations = map[string]string{taints: ""}
	if got, set := deploymentOf(t, testCluster(), p).Annotations[taints]; got != "" || !set {
		t.Errorf("what the user has written is now %q", got)
	}
}

// TestAutoscaledQuantity: a quantity that a user sets for a pool that an autoscaler has scaled is a change of the pool, also if it is that
// with which the pool began.
func TestAutoscaledQuantity(t *testing.T) {
	p := testPool()
	p.Quantity, p.AutoscalingMinSize, p.AutoscalingMaxSize = nil, ptr.To[int32](2), ptr.To[int32](5)
	if !Autoscaled(p) {
		t.Error("a pool with limits and without a quantity is not the autoscaler's")
	}
	md := deploymentOf(t, testCluster(), p)
	got := md.Annotations
	if got[rkev1.AppliedQuantityAnnotation] != "2" || got[rkev1.AutoscaledAnnotation] != "true" || *md.Spec.Replicas != 2 {
		t.Errorf("the MachineDeployment begins with %d replicas, and the annotations %v", *md.Spec.Replicas, got)
	}
	p.Quantity, md.Spec.Replicas = ptr.To[int32](2), ptr.To[int32](4)
	if replicas, scaled := Scaled(p, md); scaled || Autoscaled(p) {
		t.Errorf("the quantity of the user is overwritten with %d", replicas)
	}
	p.Quantity, p.AutoscalingMinSize, p.AutoscalingMaxSize = nil, nil, nil
	if replicas, scaled := Scaled(p, md); replicas != 4 || !scaled || Autoscaled(p) {
		t.Errorf("without the limits, %d replicas are kept (%v)", replicas, scaled)
	}
}
