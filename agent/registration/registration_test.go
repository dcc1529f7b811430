package registration

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/config"
)

var identity = Identity{ID: "machine-1", Secret: "0123456789abcdef"}

func TestRegister(t *testing.T) {
	const connection = `{"kubeConfig":"k","namespace":"n","secretName":"s","later":1}`
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the secret is sent elsewhere: %v", r.Header)
	}))
	defer elsewhere.Close()
	tests := map[string]struct {
		answer func(w http.ResponseWriter)
		err    string
		final  bool
		after  time.Duration
	}{
		"registered": {answer: func(w http.ResponseWriter) { _, _ = w.Write([]byte(connection)) }},
		"unknown": {answer: func(w http.ResponseWriter) {
			w.Header().Set(storedIdentityHeader, "accepted")
			http.Error(w, "no machine\nwith this \x1b[31mid", http.StatusUnauthorized)
		}, err: "the hub returned HTTP 401: no machine with this [31mid", final: true},
		"deleted": {answer: func(w http.ResponseWriter) {
			w.Header().Set(storedIdentityHeader, "accepted")
			http.Error(w, "has been deleted", http.StatusGone)
		}, err: "the hub returned HTTP 410: has been deleted", final: true},
		"a hub without stored identities": {answer: func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
			err: "(HTTP 401: Unauthorized); run the install script again with a registration token", final: true},
		"busy": {answer: func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}, err: "the hub returned HTTP 503: busy", after: 7 * time.Second},
		"many": {answer: func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) }, err: "Too Many Requests"},
		"elsewhere": {answer: func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusFound)
		}, err: "(HTTP 302: Found)", final: true},
		"a page":   {answer: func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, err: "the response is not connection info"},
		"half":     {answer: func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"namespace":"n"}`)) }, err: "kubeConfig: is required"},
		"too much": {answer: func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 2<<20)) }, err: "larger than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v3/connect/agent" || r.Header.Get("X-Cattle-Id") != identity.ID ||
					r.Header.Get("X-Cattle-Machine-Secret") != identity.Secret || r.Header.Get("Authorization") != "" {
					t.Errorf("got %s with %v", r.URL, r.Header)
				}
				test.answer(w)
			}))
			defer server.Close()
			got, err := Register(t.Context(), server.Client(), server.URL, identity)
			if test.err == "" {
				if diff := cmp.Diff(config.Connection{KubeConfig: "k", Namespace: "n", SecretName: "s"}, got); err != nil || diff != "" {
					t.Error(err, diff)
				}
				return
			}
			var status *StatusError
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got %v, want %q", err, test.err)
			}
			if errors.As(err, &status) && (status.Permanent() != test.final || status.RetryAfter != test.after) {
				t.Errorf("got %+v", status)
			}
		})
	}
}

func TestReadIdentity(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadIdentity(dir); !errors.Is(err, ErrNoIdentity) || !strings.Contains(err.Error(), "run the install script again") {
		t.Errorf("without files: %v", err)
	}
	put("cattle-id", "machine-1\n", 0o600)
	if _, err := ReadIdentity(dir); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("registered by a script that makes no secret: %v", err)
	}
	put("machine-secret", "0123456789abcdef", 0o600)
	if got, err := ReadIdentity(dir); err != nil || got != identity {
		t.Errorf("got %v, %v", got, err)
	}
	if err := os.Chmod(filepath.Join(dir, "machine-secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadIdentity(dir); err == nil || !strings.Contains(err.Error(), "mode must be 0600, got 0644") {
		t.Errorf("a secret that everybody reads: %v", err)
	}
	put("cattle-id", "a\nb", 0o600)
	if _, err := ReadIdentity(dir); err == nil || !strings.Contains(err.Error(), "invalid in a header") {
		t.Errorf("got %v", err)
	}
}

// FuzzDecode decodes any response: the result is an error, or valid connection info.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"kubeConfig":"k","namespace":"n","secretName":"s","planSigningKey":"x"}`))
	f.Add([]byte(`<html>`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if connection, err := decode(body); err == nil && connection.Validate() != nil {
			t.Errorf("%s: got %+v", body, connection)
		}
	})
}
