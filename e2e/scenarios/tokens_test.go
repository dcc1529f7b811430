//go:build e2e

package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// rotateTokens has the tokens rotated, and restarts the server once more: it starts with the new token alone.
func rotateTokens(t *testing.T, host *hosts.Host, key client.ObjectKey) {
	ctx := t.Context()
	before := hasToken(t, host, key)
	op := &operationv1.TokenRotation{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-tokens"}}
	op.Spec.Spec = suite.OperationSpec(key)
	suite.Must(t, shared.Hub.Create(ctx, op))
	// Between two servers of RKE2 that restart, there are 90 seconds.
	suite.Must(t, shared.WaitFor(ctx, "the tokens are rotated", 12*time.Minute, func(ctx context.Context) (bool, string) {
		if err := shared.Hub.Get(ctx, client.ObjectKeyFromObject(op), op); err != nil {
			return false, err.Error()
		}
		if op.Status.Phase.Ended() && op.Status.Phase != operationv1.PhaseSucceeded {
			t.Fatalf("it has ended: %+v", op.Status)
		}
		return op.Status.Phase == operationv1.PhaseSucceeded, string(op.Status.Phase) + " " + op.Status.Step
	}))
	if after := hasToken(t, host, key); after == before {
		t.Error("the token is the old one")
	}
	if _, err := host.Exec(ctx, "systemctl", "restart", distributionOf(t, key).ServerUnit); err != nil {
		t.Errorf("the server does not start with the new token: %v", err)
	}
	suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
}

// hasToken returns the cluster's server token, and fails the test if the server has another.
func hasToken(t *testing.T, host *hosts.Host, key client.ObjectKey) string {
	t.Helper()
	state := &corev1.Secret{}
	suite.Must(t, shared.Hub.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: rkev1.ClusterStateSecretName(key.Name)}, state))
	token := string(state.Data["serverToken"])
	result, err := host.Exec(t.Context(), "cat", distributionOf(t, key).DataDir()+"/server/token")
	suite.Must(t, err)
	if token == "" || !strings.HasSuffix(strings.TrimSpace(result.Stdout), ":"+token) {
		t.Error("the server has another token than the Secret")
	}
	return token
}
