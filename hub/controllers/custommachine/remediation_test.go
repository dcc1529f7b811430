package custommachine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestMissingNode: a machine whose Node has been missing for an hour is deleted, and kept in each case that differs in one respect.
func TestMissingNode(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	key := client.ObjectKey{Namespace: "fleet", Name: "c"}
	type world struct {
		custom  *rkev1.CustomMachine
		cluster *clusterv1.Cluster
		infra   *rkev1.RKECluster
		machine *clusterv1.Machine
		nodes   []client.Object
		cache   func(clustercache.ClusterCache) clustercache.ClusterCache
	}
	tests := map[string]struct {
		change       func(*world)
		stays        bool
		requeueAfter time.Duration
	}{
		"an hour is longer than half an hour": {},
		"Cluster API has never seen the Node again": {change: func(w *world) {
			w.machine.Status.Conditions[0].Reason = clusterv1.MachineNodeDoesNotExistReason
		}},
		"not for long enough": {change: func(w *world) { w.infra.Annotations[rkev1.DeleteMissingCustomMachinesAfterAnnotation] = "90m" },
			stays: true, requeueAfter: 30 * time.Minute},
		"the Node was deleted a moment ago, after it was not ready for an hour": {change: func(w *world) {
			w.custom.Status.Conditions = w.custom.Status.Conditions[:1]
		}, stays: true, requeueAfter: 30 * time.Minute},
		"the Node was deleted ten minutes ago": {change: func(w *world) {
			w.custom.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(-10 * time.Minute))
		}, stays: true, requeueAfter: 20 * time.Minute},
		"nobody has asked for it": {change: func(w *world) { w.infra.Annotations = nil }, stays: true},
		"the annotation is a number": {change: func(w *world) { w.infra.Annotations[rkev1.DeleteMissingCustomMachinesAfterAnnotation] = "30" },
			stays: true},
		"the annotation is negative": {change: func(w *world) { w.infra.Annotations[rkev1.DeleteMissingCustomMachinesAfterAnnotation] = "-30m" },
			stays: true},
		"the Node is there but not ready": {change: func(w *world) {
			w.machine.Status.Conditions[0].Reason = "NodeNotHealthy"
		}, stays: true},
		"the machine never had a Node": {change: func(w *world) { w.machine.Status.NodeRef = clusterv1.MachineNodeReference{} }, stays: true},
		"a machine of a pool":          {change: func(w *world) { w.machine.Spec.InfrastructureRef.Kind = "LabMachine" }, stays: true},
		"the cluster is being restored": {change: func(w *world) {
			w.machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: rkev1.RestoringAnnotation}
		}, stays: true},
		"the cluster is paused": {change: func(w *world) { w.cluster.Spec.Paused = ptr.To(true) }, stays: true},
		"the Node has come back": {change: func(w *world) { w.nodes = []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}} },
			stays: true},
		"the Node has come back by another name": {change: func(w *world) {
			w.nodes = []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m",
				Labels: map[string]string{rkev1.MachineUIDLabel: "uid"}}}}
		}, stays: true},
		"others are there": {change: func(w *world) { w.nodes = []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}}} }},
		"the cluster cannot be asked": {change: func(w *world) {
			w.cache = func(clustercache.ClusterCache) clustercache.ClusterCache {
				return clustercache.NewFakeEmptyClusterCache()
			}
		}, stays: true},
		"somebody else's infrastructure": {change: func(w *world) { w.cluster.Spec.InfrastructureRef.Kind = "LabCluster" }, stays: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := &world{
				cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}},
				infra: &rkev1.RKECluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c",
					Annotations: map[string]string{rkev1.DeleteMissingCustomMachinesAfterAnnotation: "30m"}}},
				machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a", UID: "uid",
					Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}},
				cache: func(c clustercache.ClusterCache) clustercache.ClusterCache { return c },
			}
			w.cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKECluster",
				Name: "c"}
			w.machine.Spec.ClusterName = "c"
			w.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "CustomMachine",
				Name: "a"}
			w.machine.Status.NodeRef.Name = "n"
			w.machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineNodeHealthyCondition, Status: metav1.ConditionFalse,
				Reason: clusterv1.MachineNodeDeletedReason, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
			w.custom = &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a", OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(w.machine, clusterv1.GroupVersion.WithKind("Machine"))}}}
			w.custom.Status.Conditions = []metav1.Condition{
				{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason},
				{Type: rkev1.NodeMissingCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineNodeDeletedReason,
					LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
			}
			if tc.change != nil {
				tc.change(w)
			}
			scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme, corev1.AddToScheme)
			custom := w.custom
			hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.cluster, w.infra, w.machine, custom).
				WithStatusSubresource(custom).Build()
			remote := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.nodes...).Build()
			r := &Reconciler{Client: hub, ClusterCache: w.cache(clustercache.NewFakeClusterCache(remote, key)), Now: func() time.Time { return now }}
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(custom)})
			if err != nil {
				t.Fatal(err)
			}
			if result.RequeueAfter != tc.requeueAfter {
				t.Errorf("requeues after %s", result.RequeueAfter)
			}
			err = hub.Get(t.Context(), client.ObjectKeyFromObject(w.machine), &clusterv1.Machine{})
			if gone := apierrors.IsNotFound(err); gone == tc.stays {
				t.Errorf("deleted: %v", gone)
			}
			err = hub.Get(t.Context(), client.ObjectKeyFromObject(custom), custom)
			if set := conditions.IsTrue(custom, rkev1.NodeMissingCondition); err != nil || set != (nodeMissing(w.machine) != nil) {
				t.Errorf("NodeMissing: %v, %v", set, err)
			}
		})
	}
}
