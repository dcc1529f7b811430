package rkecontrolplane

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/access/endpoint"
	"github.com/drover-dev/drover/hub/access/tunnelaccess"
)

// verify accepts what the hub has signed with the key that it has now.
func (w *kubeconfigWorld) verify(token string) error {
	if !strings.HasPrefix(token, "token"+w.key+":") {
		return errors.New("not signed with the key of now")
	}
	return nil
}

// TestKubeconfigAfterNewKey: a hub whose key for tokens was replaced refuses the token in a kubeconfig, of which the Token is still there.
func TestKubeconfigAfterNewKey(t *testing.T) { synctest.Test(t, testKubeconfigAfterNewKey) }

func testKubeconfigAfterNewKey(t *testing.T) {
	w := newKubeconfigWorld(t)
	w.agent, w.sees = true, endpoint.Result{Tunnel: true}
	for range 3 {
		w.now = w.now.Add(time.Minute)
		w.reconcile(time.Minute)
	}
	before := w.config()
	if before.Host != throughTunnel {
		t.Fatalf("it leads to %s", before.Host)
	}
	w.now = w.now.Add(time.Hour)
	if w.reconcile(0); w.config().BearerToken != before.BearerToken {
		t.Error("a good token was replaced")
	}
	w.key = "2"
	if w.reconcile(0); w.config().BearerToken == before.BearerToken || w.config().Host != throughTunnel {
		t.Errorf("the kubeconfig has a token that the hub refuses, for %s", w.config().Host)
	}
	w.now = w.now.Add(tunnelaccess.Handover + time.Minute)
	if w.reconcile(0); len(w.tokens()) != 1 {
		t.Errorf("there are %d Tokens", len(w.tokens()))
	}
}
