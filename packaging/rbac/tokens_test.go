package rbac

import (
	"context"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// TestRevokedTokens: the hub may delete a token of its own that was replaced, which it does ten minutes later. No integration test waits so
// long.
func TestRevokedTokens(t *testing.T) {
	const cluster = "c-m-abcdefgh"
	scheme := runtime.NewScheme()
	if err := managementv3.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	replaced := &managementv3.Token{
		ObjectMeta: metav1.ObjectMeta{Name: "replaced", Labels: map[string]string{"management.cattle.io/hub-access-to": cluster}},
		Spec: managementv3.TokenSpec{
			ClusterName: cluster, Hash: strings.Repeat("0", 64), ExpiresAt: metav1.NewTime(time.Now().Add(30 * 24 * time.Hour)),
		},
	}
	deleted := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(replaced).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			deleted++
			return c.Delete(ctx, object, opts...)
		},
	}).Build()
	now := time.Now()
	access := &tunnelaccess.Access{Client: c, Live: c, Now: func() time.Time { return now }}
	for _, want := range []int{0, 1} {
		if err := access.Revoke(t.Context(), nil, cluster); err != nil || deleted != want {
			t.Fatalf("%d tokens were deleted, want %d: %v", deleted, want, err)
		}
		now = now.Add(tunnelaccess.Handover)
	}
	request := []rbacv1.PolicyRule{{
		Verbs: []string{"delete"}, APIGroups: []string{managementv3.GroupVersion.Group}, Resources: []string{"tokens"},
		ResourceNames: []string{replaced.Name},
	}}
	rules, _, err := HubRules()
	if err != nil {
		t.Fatal(err)
	}
	if ok, _ := validation.Covers(rules, request); !ok {
		t.Error("hub.yaml does not allow the hub to delete Tokens")
	}
}
