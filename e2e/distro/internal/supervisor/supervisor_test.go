package supervisor

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// serve runs a supervisor and returns its URL and CA file.
func serve(t *testing.T) (url string, ca []byte) {
	t.Helper()
	s := &Server{
		ServerToken: "sss", AgentToken: "aaa", Settings: Settings{ClusterDomain: "cluster.local"},
		Bootstrap:  func() (Bundle, error) { return Bundle{"tls/server-ca.key": []byte("key")}, nil },
		Sign:       func(r SignRequest) (SignResponse, error) { return SignResponse{"for": []byte(r.NodeName)}, nil },
		APIServers: func(context.Context) ([]string, error) { return []string{"10.0.0.1:6443"}, nil },
		Etcd:       func(context.Context) (Info, error) { return Info{}, errors.New("etcd is unreachable") },
	}
	h := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Handler().ServeHTTP(w, r) }))
	t.Cleanup(h.Close)
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	s.CACerts = ca
	return h.URL, ca
}

func TestTokens(t *testing.T) {
	url, ca := serve(t)
	for _, tc := range []struct {
		name, token            string
		dial, settings, bundle error
	}{
		{"the server's", "sss", nil, nil, nil},
		{"an agent's opens no bundle", "aaa", nil, nil, ErrRefused},
		{"a full one", FormatToken(ca, "server", "sss"), nil, nil, nil},
		{"one of another cluster", FormatToken([]byte("other"), "server", "sss"), ErrRefused, nil, nil},
		{"a wrong one", "xxx", nil, ErrRefused, ErrRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Dial(t.Context(), url, tc.token, nil)
			if !errors.Is(err, tc.dial) {
				t.Fatalf("dialing: %v", err)
			}
			if err != nil {
				return
			}
			if _, err := c.Settings(t.Context()); !errors.Is(err, tc.settings) {
				t.Errorf("settings: %v", err)
			}
			if _, err := c.Bootstrap(t.Context()); !errors.Is(err, tc.bundle) {
				t.Errorf("bootstrap: %v", err)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	url, ca := serve(t)
	c, err := Dial(t.Context(), url, "sss", ca)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := c.Sign(t.Context(), SignRequest{NodeName: "n1"})
	if diff := cmp.Diff(SignResponse{"for": []byte("n1")}, signed); diff != "" || err != nil {
		t.Error(diff, err)
	}
	servers, err := c.APIServers(t.Context())
	if diff := cmp.Diff([]string{"10.0.0.1:6443"}, servers); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := c.Etcd(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd is unreachable") {
		t.Errorf("got %v", err)
	}
	if _, err := Dial(t.Context(), url, "sss", []byte("not a certificate")); err == nil {
		t.Error("a CA file that is none was taken")
	}
}

// The members of etcd may be read without a token from the machine itself only, and not by claiming to be there.
func TestInfoFromElsewhere(t *testing.T) {
	for _, tc := range []struct {
		name, remote, header string
		proxied              bool
		want                 int
	}{
		{"loopback", "127.0.0.1:5", "", false, http.StatusServiceUnavailable},
		{"elsewhere", "10.0.0.9:5", "127.0.0.1:5", false, http.StatusUnauthorized},
		{"proxied loopback", "@", "[::1]:5", true, http.StatusServiceUnavailable},
		{"proxied elsewhere", "127.0.0.1:5", "10.0.0.9:5", true, http.StatusUnauthorized},
		{"proxied nowhere", "127.0.0.1:5", "", true, http.StatusUnauthorized},
	} {
		s := &Server{Proxied: tc.proxied, Etcd: func(context.Context) (Info, error) { return Info{}, errors.New("away") }}
		r := httptest.NewRequest(http.MethodGet, "/db/info", nil)
		r.RemoteAddr = tc.remote
		r.Header.Set(RemoteAddress, tc.header)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, w.Code, tc.want)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("sss")
	f.Add(FormatToken([]byte("ca"), "node", "a:b"))
	f.Fuzz(func(t *testing.T, token string) {
		hash, secret, err := ParseToken(token)
		if err == nil && (secret == "" || hash != "" && len(hash) != 64) {
			t.Errorf("%q became %q and %q", token, hash, secret)
		}
	})
}
