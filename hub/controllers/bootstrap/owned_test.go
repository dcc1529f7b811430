package bootstrap

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/apply"
)

// TestIdentityAtRest: a reconcile that finds the identity of a machine as it should be makes no request, whatever the agent writes into its plan
// Secret meanwhile. There are several reconciles of each machine in a rollout.
func TestIdentityAtRest(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, rkev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	writes, reads := 0, 0
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	c := interceptor.NewClient(cache, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			writes++
			return c.Create(ctx, obj, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			writes++
			return c.Apply(ctx, obj, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, obj, opts...)
		},
	})
	r := &Reconciler{Client: c, Cache: cache, Live: c, keeper: &apply.Keeper{Client: c, Owner: fieldOwner, Metadata: cache}}
	bootstrap, machine := testObjects()
	reconcile := func() {
		t.Helper()
		writes, reads = 0, 0
		s := &scope{bootstrap: bootstrap, machine: machine}
		if err := r.reconcileIdentity(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	change := func(body string) {
		t.Helper()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}}
		if err := cache.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	if reconcile(); writes == 0 {
		t.Fatal("the identity was made without a request")
	}
	if reconcile(); writes+reads > 0 {
		t.Errorf("at rest there are %d writes and %d reads", writes, reads)
	}
	change(`{"data":{"applied-checksum":"MQ=="}}`)
	if reconcile(); writes+reads > 0 {
		t.Errorf("when the agent has reported there are %d writes and %d reads", writes, reads)
	}
	change(`{"metadata":{"labels":{"` + rkev1.MachineNameLabel + `":"another"}}}`)
	if reconcile(); writes != 1 {
		t.Errorf("when a label was changed there are %d writes, want 1", writes)
	}
	if err := r.forget(client.ObjectKeyFromObject(bootstrap)); err != nil {
		t.Fatal(err)
	}
	if reconcile(); writes == 0 {
		t.Error("what is gone is still remembered")
	}
}
