package timeline

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// TestNameTaken: a Cluster with the name of a cluster that was made for something else takes no part in its timeline, which would be
// deleted with that Cluster.
func TestNameTaken(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: clusterKey.Name, UID: "native", CreationTimestamp: metav1.NewTime(noon)}
	native := &clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
		APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane", Name: meta.Name}}}
	plane := &rkev1.RKEControlPlane{ObjectMeta: meta}
	plane.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: meta.Name,
		UID: native.UID}}
	plane.Status.Conditions = []metav1.Condition{condition(rkev1.ReadyCondition, metav1.ConditionTrue, "Ready", noon)}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, provisioningv1.AddToScheme,
		rkev1.AddToScheme, operationv1.AddToScheme)).WithObjects(native, plane).Build()
	now := noon
	r := &Reconciler{Client: c, Live: c, Now: func() time.Time { return now }}
	check := func(when string) {
		t.Helper()
		now = now.Add(time.Minute)
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: clusterKey}); err != nil {
			t.Fatal(err)
		}
		part := &corev1.ConfigMap{}
		part.Namespace, part.Name = clusterKey.Namespace, rkev1.TimelinePartName(clusterKey.Name, 0)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(part), part); err != nil {
			t.Fatal(err)
		}
		if len(part.OwnerReferences) != 1 || part.OwnerReferences[0].UID != native.UID {
			t.Errorf("%s: the timeline is owned by %+v", when, part.OwnerReferences)
		}
		record, _, err := timelines.Read(t.Context(), c, clusterKey)
		if err != nil {
			t.Fatal(err)
		}
		if phase, _ := record.Subjects[0].Present(); len(record.Subjects) != 1 || phase.Name != phaseReady {
			t.Errorf("%s: %d subjects, the cluster's phase is %+v", when, len(record.Subjects), phase)
		}
	}
	check("before")
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: "tenant"},
		Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	cluster.Status.Conditions = []metav1.Condition{condition(provisioningv1.ReadyCondition, metav1.ConditionFalse, "NameTaken", now)}
	if err := c.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	check("with a Cluster of the name")
}
