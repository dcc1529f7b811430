package cli

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

func TestTokenAndAuthoritiesAsk(t *testing.T) {
	t.Setenv("K3S_TOKEN", "")
	var token string
	var bundle supervisor.Bundle
	var query string
	url, dataDir := serve(t, map[string]http.HandlerFunc{
		"PUT " + supervisor.TokenPath: func(_ http.ResponseWriter, r *http.Request) {
			var req supervisor.TokenRequest
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
				t.Error(err)
			}
			token = *req.NewToken
		},
		"PUT " + supervisor.AuthoritiesPath: func(w http.ResponseWriter, r *http.Request) {
			bundle, query = nil, r.URL.RawQuery
			if err := json.NewDecoder(r.Body).Decode(&bundle); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusNoContent)
		},
	})
	path := t.TempDir()
	write(t, filepath.Join(path, "tls", "server-ca.crt"), "c")
	write(t, filepath.Join(path, "tls", "etcd", "peer-ca.key"), "k")
	write(t, filepath.Join(path, "tls", "other.crt"), "x")
	for _, tc := range []struct {
		args string
		code int
	}{
		{"token rotate --new-token next", 0}, {"token create", 1}, {"certificate rotate-ca --path " + path + " --force", 0},
		{"certificate rotate-ca", 1}, {"certificate rotate-ca --path " + t.TempDir(), 1},
	} {
		args := append(strings.Fields(tc.args), "--data-dir", dataDir, "--server", url)
		if code := Run(t.Context(), args[0], args[1:]); code != tc.code {
			t.Errorf("%s: exit code %d", tc.args, code)
		}
	}
	if token != "next" || query != "force=true" {
		t.Errorf("token %q, query %q", token, query)
	}
	want := supervisor.Bundle{"tls/server-ca.crt": []byte("c"), "tls/etcd/peer-ca.key": []byte("k")}
	if diff := cmp.Diff(want, bundle); diff != "" {
		t.Error(diff)
	}
}
