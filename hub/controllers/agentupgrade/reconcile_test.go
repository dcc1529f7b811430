package agentupgrade

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestGenerationRemoved: a Cluster that asks for no upgrade any more says nothing of the last one, unless it is paused.
func TestGenerationRemoved(t *testing.T) {
	for name, paused := range map[string]bool{"paused": true, "not paused": false} {
		cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "one", UID: "one"},
			Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
		conditions.Set(cluster, metav1.Condition{Type: provisioningv1.SystemAgentsUpgradedCondition, Status: metav1.ConditionFalse,
			Reason: "Failed"})
		capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "one", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(cluster, provisioningv1.GroupVersion.WithKind("Cluster"))}}}
		capi.Spec.Paused = new(paused)
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme)).
			WithObjects(cluster, capi).WithStatusSubresource(cluster).Build()
		r := &Reconciler{Client: c, Cache: c}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		if has := conditions.Has(cluster, provisioningv1.SystemAgentsUpgradedCondition); has != paused {
			t.Errorf("%s: the condition is there: %t", name, has)
		}
	}
}
