package rkecontrolplane

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/access/endpoint"
)

// TestTokenFromTheFuture: a token that was made while the hub's clock was ahead is replaced and deleted once the clock is right, since the
// hub refuses it.
func TestTokenFromTheFuture(t *testing.T) { synctest.Test(t, testTokenFromTheFuture) }

func testTokenFromTheFuture(t *testing.T) {
	w := newKubeconfigWorld(t)
	right := w.now
	w.now, w.agent, w.sees = right.Add(14*time.Hour), true, endpoint.Result{Tunnel: true}
	w.reconcile(0)
	w.reconcile(time.Minute)
	first := w.config().BearerToken
	if first == "" {
		t.Fatal("the kubeconfig has no token")
	}
	w.now = right
	w.reconcile(0)
	second := w.config().BearerToken
	if second == first || second == "" {
		t.Errorf("the kubeconfig has the token %q, and had %q", second, first)
	}
	w.now = right.Add(time.Hour)
	w.reconcile(0)
	if tokens := w.tokens(); len(tokens) != 1 || w.config().BearerToken != second {
		t.Errorf("there are %d tokens, and the kubeconfig has %q", len(tokens), w.config().BearerToken)
	}
}
