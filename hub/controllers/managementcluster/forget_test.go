package managementcluster

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// TestDeletedControlPlaneIsForgotten: nothing that was applied for an RKEControlPlane stays in memory when that is gone.
func TestDeletedControlPlaneIsForgotten(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{rkev1.AddToScheme, managementv3.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	requests := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			requests++
			return c.Apply(ctx, obj, opts...)
		},
	}).Build()
	r := &controlPlaneReconciler{client: c, live: c, ssa: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
	key := client.ObjectKey{Namespace: "ns", Name: "one"}
	apply := func() {
		t.Helper()
		if err := r.ssa.Apply(t.Context(), key, &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-abcdefgh"}}); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	apply()
	if requests != 1 {
		t.Fatalf("%d requests for an object that is as it should be", requests)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if apply(); requests != 2 {
		t.Error("what was applied for a deleted RKEControlPlane is still in memory")
	}
}
