package cluster

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestOwnConfig: a machine configuration that several Clusters use belongs to all of them, so that the deletion of one leaves it to the
// others. One that belongs to something else stays so.
func TestOwnConfig(t *testing.T) {
	kind := schema.ConfigKind("lab")
	user := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "templates", UID: "u"}
	owner := func(name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: uid}
	}
	for name, tt := range map[string]struct{ before, want []metav1.OwnerReference }{
		"two Clusters": {nil, []metav1.OwnerReference{owner("a", "1"), owner("b", "2")}},
		"the user's":   {[]metav1.OwnerReference{user}, []metav1.OwnerReference{user}},
	} {
		config := &unstructured.Unstructured{}
		config.SetGroupVersionKind(kind)
		config.SetNamespace("fleet")
		config.SetName("workers")
		config.SetOwnerReferences(tt.before)
		scheme := fakeclient.Scheme(t, func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
			return nil
		})
		writes := 0
		r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				writes++
				return c.Patch(ctx, o, p, opts...)
			},
		}).Build()}
		for range 2 {
			for _, ref := range []metav1.OwnerReference{owner("a", "1"), owner("b", "2")} {
				if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
					t.Fatal(err)
				}
				cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: ref.Name, UID: ref.UID}}
				if err := r.ownConfig(t.Context(), &poolScope{cluster: cluster}, config); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, config.GetOwnerReferences()); diff != "" || writes != len(tt.want)-len(tt.before) {
			t.Errorf("%s: %d writes: %s", name, writes, diff)
		}
	}
}
