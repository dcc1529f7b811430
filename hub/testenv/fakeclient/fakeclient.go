// Package fakeclient has what unit tests share that use controller-runtime's fake client. It links no hub: tests that need one use testenv.
package fakeclient

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drover-dev/drover/hub/util/ssa"
)

// Scheme returns a scheme with the types that the functions add.
func Scheme(t testing.TB, add ...func(*runtime.Scheme) error) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, addToScheme := range add {
		if err := addToScheme(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// CountApplies returns the client with a counter of its server-side apply requests.
func CountApplies(c client.WithWatch) (_ client.WithWatch, requests *int) {
	requests = new(int)
	return interceptor.NewClient(c, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			*requests++
			return c.Apply(ctx, obj, opts...)
		},
	}), requests
}

// InformerAt is an informer whose cache has come to a version.
type InformerAt struct {
	cache.Informer
	toolscache.Indexer
	Version string
}

// GetIndexer is part of each informer of client-go.
func (i InformerAt) GetIndexer() toolscache.Indexer { return i }

// LastStoreSyncResourceVersion implements toolscache.Indexer.
func (i InformerAt) LastStoreSyncResourceVersion() string { return i.Version }

// AddIndexers is of both that it embeds.
func (InformerAt) AddIndexers(toolscache.Indexers) error { return nil }

// CheckForget fails the test unless the reconciler drops from its ssa.Cache what was applied for an object that was deleted. newReconciler
// returns the reconciler with the client and the cache; add adds the types that it reads.
func CheckForget(
	t *testing.T, newReconciler func(client.WithWatch, *ssa.Cache) reconcile.Reconciler, add ...func(*runtime.Scheme) error,
) {
	t.Helper()
	scheme := Scheme(t, append(add, corev1.AddToScheme)...)
	c, requests := CountApplies(fake.NewClientBuilder().WithScheme(scheme).Build())
	applies := &ssa.Cache{Client: c, FieldOwner: "test"}
	deleted := client.ObjectKey{Namespace: "ns", Name: "deleted"}
	apply := func() {
		t.Helper()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "applied"}}
		if err := applies.Apply(t.Context(), deleted, object); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	apply()
	if *requests != 1 {
		t.Fatalf("an object that has not changed was applied with %d requests, want 1", *requests)
	}
	if _, err := newReconciler(c, applies).Reconcile(t.Context(), reconcile.Request{NamespacedName: deleted}); err != nil {
		t.Fatal(err)
	}
	if apply(); *requests != 2 {
		t.Error("the cache still has what was applied for a deleted object")
	}
}
