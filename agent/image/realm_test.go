package image

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestTokensFromElsewhere pulls with a bearer token from another host, whose certificate registries.yaml speaks of.
func TestTokensFromElsewhere(t *testing.T) {
	tokens := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "drover" || password != "secret" || r.URL.Query().Get("scope") != "repository:a/b:pull" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"token":"t0ken"}`)
	}))
	tokens.Config.ErrorLog = quiet
	t.Cleanup(tokens.Close)
	for _, realm := range []string{strings.Replace(tokens.URL, "127.0.0.1", "localhost", 1), tokens.URL + "/auth?account=x"} {
		h := newRegistry(t, false)
		push(t, h, "a/b:v1", twoLayers(t))
		h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Header.Get("Authorization") != "Bearer t0ken" {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
		at, err := url.Parse(realm)
		if err != nil {
			t.Fatal(err)
		}
		s := newStore(t, fmt.Sprintf("configs:\n  %q:\n    auth: {username: drover, password: secret}\n  %q:\n    tls: {insecure_skip_verify: "+
			"true}\n", h.host(), at.Host))
		got, err := stage(t, s, h.host()+"/a/b:v1")
		checkStaged(t, got, err)
		s = newStore(t, fmt.Sprintf("configs:\n  %q:\n    auth: {username: drover, password: secret}\n", h.host()))
		if _, err := stage(t, s, h.host()+"/a/b:v1"); err == nil || !strings.Contains(err.Error(), "tls: failed to verify certificate") {
			t.Errorf("got %v", err)
		}
	}
}
