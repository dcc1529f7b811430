package rkecluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestExternallyManaged: an RKECluster that is managed elsewhere is left as it is.
func TestExternallyManaged(t *testing.T) {
	infra := &rkev1.RKECluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c",
		Annotations: map[string]string{clusterv1.ManagedByAnnotation: ""}}}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme, clusterv1.AddToScheme)).WithObjects(infra).
		WithStatusSubresource(infra).Build()
	key := client.ObjectKeyFromObject(infra)
	before, after := &rkev1.RKECluster{}, &rkev1.RKECluster{}
	if err := c.Get(t.Context(), key, before); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first ones would set Paused and add the finalizer
		if _, err := (&Reconciler{Client: c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), key, after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("it has changed (-before +after):\n%s", diff)
	}
}

// TestExternallyManagedLater: the hub's finalizer from before does not keep an RKECluster that is managed elsewhere; those of others do.
func TestExternallyManagedLater(t *testing.T) {
	for finalizer, kept := range map[string]bool{Finalizer: false, "example.com/external": true} {
		infra := &rkev1.RKECluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", Finalizers: []string{finalizer},
			DeletionTimestamp: new(metav1.Now()), Annotations: map[string]string{clusterv1.ManagedByAnnotation: "external"}}}
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme, clusterv1.AddToScheme)).WithObjects(infra).
			WithStatusSubresource(infra).Build()
		key := client.ObjectKeyFromObject(infra)
		for range 3 {
			if _, err := (&Reconciler{Client: c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
		}
		after := &rkev1.RKECluster{}
		if err := c.Get(t.Context(), key, after); client.IgnoreNotFound(err) != nil || (err == nil) != kept {
			t.Errorf("%s: %v", finalizer, err)
		} else if kept && len(after.Status.Conditions) > 0 {
			t.Errorf("%s: the conditions are %v", finalizer, after.Status.Conditions)
		}
	}
}
