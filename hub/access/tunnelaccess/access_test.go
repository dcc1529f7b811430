package tunnelaccess

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/drover-dev/drover/hub/server/settings"
)

// answering is an API server, or what stands before it, that gives one answer.
func answering(t *testing.T, code int, check func(*http.Request)) (url string, authorities []byte) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if check != nil {
			check(r)
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// Whoever proves to be the cluster's server and answers at all is there, also where it lets nobody in without credentials.
func TestDirect(t *testing.T) {
	for code, want := range map[int]bool{200: true, 401: true, 403: true, 500: false, 503: false} {
		url, authorities := answering(t, code, func(r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Error("a server that is only looked at is shown a credential")
			}
		})
		if got := Direct(t.Context(), url, authorities); (got == nil) != want {
			t.Errorf("%d: %v", code, got)
		}
	}
	url, _ := answering(t, 200, nil)
	if err := Direct(t.Context(), url, []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")); err == nil {
		t.Error("a server that nobody vouches for counts")
	}
	if err := Direct(t.Context(), "https://127.0.0.1:1", nil); err == nil {
		t.Error("nobody counts")
	}
}

// Through the tunnel only an answer of the API itself counts: the gateway answers others for clusters that are disconnected.
func TestAnswers(t *testing.T) {
	for code, want := range map[int]bool{200: true, 401: false, 403: false, 503: false} {
		var path, token string
		url, authorities := answering(t, code, func(r *http.Request) { path, token = r.URL.Path, r.Header.Get("Authorization") })
		access := &Access{
			Settings: settings.Settings{ServerURL: url, CACerts: authorities},
			Issue: func(u user.Info, cluster string, ttl time.Duration, _ string, lasting bool) (string, error) {
				if lasting || ttl > time.Minute {
					t.Error("a token for one request lasts")
				}
				return u.GetName() + "/" + u.GetGroups()[0] + "/" + cluster, nil
			},
		}
		if got := access.Answers(t.Context(), "c-m-a", false); (got == nil) != want {
			t.Errorf("%d: %v", code, got)
		}
		if path != "/k8s/clusters/c-m-a/readyz" || token != "Bearer system:drover:hub/drover:controllers/c-m-a" {
			t.Errorf("it asked %s with %s", path, token)
		}
	}
}

// A hub without tunnels leads nowhere.
func TestWithoutAccess(t *testing.T) {
	var none *Access
	if none.Connected("c-m-a") || none.UsesTunnel(nil, "c-m-a") || none.Revoke(t.Context(), nil, "c-m-a") != nil {
		t.Error("it does")
	}
}
