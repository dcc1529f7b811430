package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// A name that is wrong leaves no other token valid.
func TestRevokeTokens(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := managementv3.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	token := &managementv3.Token{}
	token.Name = "token-b"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(token).Build()
	var out bytes.Buffer
	err := revokeTokens(t.Context(), c, []string{"token-a", "token-b"}, &out)
	if err == nil || !strings.Contains(err.Error(), "token token-a not found") || out.String() != "token token-b revoked\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(token), token); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the token is still there: %v", err)
	}
}
