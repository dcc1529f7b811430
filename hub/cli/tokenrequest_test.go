package cli

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/util/redirect"
)

// TestTokenRequestStays: the credential of the management kubeconfig goes to the hub and to nobody whom that one names.
func TestTokenRequestStays(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server sees %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	hub := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer hub.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})
	_, err := requestToken(t.Context(), &rest.Config{BearerToken: "hush"}, hub.URL, authority, tokenRequest{Cluster: "c-m-a"})
	var refused *redirect.Error
	if !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
}
