package authwebhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	gocmp "github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// newKey makes a key, and the file that a cluster has of it.
func newKey(t *testing.T) (ed25519.PrivateKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "k", Algorithm: string(jose.EdDSA),
		Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return private, path
}

func sign(t *testing.T, key ed25519.PrivateKey, said claims) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key},
		(&jose.SignerOptions{}).WithType("drover-user+jwt").WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(said).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// anna is a token as the hub makes it.
func anna() claims {
	return claims{
		Claims: jwt.Claims{
			Issuer: "drover", Subject: "anna", Audience: jwt.Audience{"c-m-a"}, ID: "t",
			IssuedAt: jwt.NewNumericDate(time.Now().Add(-time.Minute)), Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute)),
		},
		UserID: "u", Groups: []string{"ops", "system:authenticated", "system:masters",
			"system:serviceaccounts"}, Extra: map[string][]string{"team": {"blue"}},
	}
}

func TestVerify(t *testing.T) {
	key, file := newKey(t)
	otherKey, _ := newKey(t)
	for _, tc := range []struct {
		name   string
		change func(*claims)
		key    ed25519.PrivateKey
		admins bool
		user   string
		want   string
	}{
		{name: "a short token"},
		{name: "an administrator", admins: true},
		{name: "a ServiceAccount of the hub's Kubernetes", change: func(c *claims) { c.Subject = "system:serviceaccount:a:b" },
			user: "drover:hub:system:serviceaccount:a:b"},
		{name: "another cluster", change: func(c *claims) { c.Audience = jwt.Audience{"c-m-b"} }, want: "another cluster than c-m-a"},
		{name: "expired", change: func(c *claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Minute)) },
			want: "expired at 2"},
		{name: "a clock that is a little slow", change: func(c *claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(-10 * time.Second)) }},
		{name: "without an end", change: func(c *claims) { c.Expiry = nil }, want: "has no expiry"},
		{name: "not yet issued", change: func(c *claims) { c.IssuedAt = jwt.NewNumericDate(time.Now().Add(time.Hour)) },
			want: "invalid: wrong issuer, or not valid yet"},
		{name: "of another purpose", change: func(c *claims) { c.Issuer = "somebody" }, want: "invalid: wrong issuer, or not valid yet"},
		{name: "one that lasts", change: func(c *claims) { c.Persistent = true }, want: "only the hub knows if it was revoked"},
		{name: "another key", key: otherKey, want: "not signed by this cluster's hub"},
		{name: "nobody", change: func(c *claims) { c.Subject = "" }, want: "no subject"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := &Verifier{Cluster: "c-m-a", KeysFile: file, Administrators: tc.admins}
			said := anna()
			if tc.change != nil {
				tc.change(&said)
			}
			signer := key
			if tc.key != nil {
				signer = tc.key
			}
			token := sign(t, signer, said)
			user, err := v.Verify(token)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), token) {
					t.Fatalf("got %v, want %q and no token", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			groups := []string{"ops", "drover:hub:system:masters", "drover:hub:system:serviceaccounts"}
			if tc.admins {
				groups = []string{"ops", "system:masters", "drover:hub:system:serviceaccounts"}
			}
			want := &authenticationv1.UserInfo{Username: cmp.Or(tc.user, "anna"), UID: "u", Groups: groups,
				Extra: map[string]authenticationv1.ExtraValue{"team": {"blue"}}}
			if diff := gocmp.Diff(want, user); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Tokens of other algorithms, and texts that are no tokens, are nobody's.
func TestVerifyGarbage(t *testing.T) {
	key, file := newKey(t)
	v := &Verifier{Cluster: "c-m-a", KeysFile: file}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: bytes.Repeat([]byte("k"), 32)},
		(&jose.SignerOptions{}).WithType("drover-user+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	symmetric, err := jwt.Signed(signer).Claims(anna()).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	good := sign(t, key, anna())
	if signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key},
		(&jose.SignerOptions{}).WithType("drover-agent+jwt")); err != nil {
		t.Fatal(err)
	}
	agents, err := jwt.Signed(signer).Claims(anna()).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", "x", "a.b.c", symmetric, agents, good[:len(good)-10], strings.Replace(good, ".", "..", 1)} {
		if user, err := v.Verify(token); err == nil {
			t.Errorf("%q is %s", token, user.Username)
		}
	}
}

// A private key has no place in the cluster.
func TestPrivateKeyIsRefused(t *testing.T) {
	key, file := newKey(t)
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key, KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	v := &Verifier{Cluster: "c-m-a", KeysFile: file}
	if _, err := v.Verify(sign(t, key, anna())); err == nil || !strings.Contains(err.Error(), "contains a private key") {
		t.Errorf("got %v", err)
	}
}

// The API server asks in v1beta1 unless it is told otherwise, and takes an answer of the same version only.
func TestServe(t *testing.T) {
	key, file := newKey(t)
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	v := &Verifier{Cluster: "c-m-a", KeysFile: file}
	server := httptest.NewServer(handler(v, log))
	defer server.Close()
	good := sign(t, key, anna())
	expired := anna()
	expired.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Hour))
	bad := sign(t, key, expired)
	for _, tc := range []struct {
		version, token string
		user, err      string
	}{
		{version: "v1beta1", token: good, user: "anna"},
		{version: "v1", token: good, user: "anna"},
		{version: "v1", token: bad, err: "expired"},
	} {
		body, err := json.Marshal(map[string]any{
			"apiVersion": "authentication.k8s.io/" + tc.version, "kind": "TokenReview", "spec": map[string]any{"token": tc.token},
		})
		if err != nil {
			t.Fatal(err)
		}
		raw := post(t, server.URL+reviewPath, body, http.StatusOK)
		var got authenticationv1.TokenReview
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if got.APIVersion != "authentication.k8s.io/"+tc.version || got.Kind != "TokenReview" || got.Status.User.Username != tc.user ||
			got.Status.Authenticated != (tc.user != "") || !strings.Contains(got.Status.Error, tc.err) {
			t.Errorf("%s: got %s", tc.version, raw)
		}
		if bytes.Contains(raw, []byte(tc.token)) || strings.Contains(logged.String(), tc.token) {
			t.Errorf("%s: answer or log say the token again", tc.version)
		}
	}
	post(t, server.URL+reviewPath, []byte(`{"kind":"Pod"}`), http.StatusBadRequest)
	post(t, server.URL+reviewPath, bytes.Repeat([]byte(" "), maxReviewBytes+1), http.StatusBadRequest)
}

func post(t *testing.T, url string, body []byte, code int) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != code {
		t.Fatalf("got %d %s (%v), want %d", answer.StatusCode, raw, err, code)
	}
	return raw
}

func TestStopsWithItsContext(t *testing.T) {
	_, file := newKey(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, "127.0.0.1:0", &Verifier{Cluster: "c", KeysFile: file}, slog.New(slog.DiscardHandler))
	}()
	cancel()
	select {
	case err := <-done:
		if err != nil && !strings.Contains(err.Error(), "context canceled") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not stop")
	}
}
