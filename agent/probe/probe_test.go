package probe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

func TestCheck(t *testing.T) {
	var server, other *httptest.Server
	other = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthy":
			if r.UserAgent() != userAgent || r.Header.Get("Accept") != "*/*" || r.Method != http.MethodGet {
				w.WriteHeader(http.StatusTeapot)
			}
		case "/endless":
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, strings.Repeat("x", 1<<10))
			}
		case "/here":
			http.Redirect(w, r, "/healthy", http.StatusFound)
		case "/away":
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{
		"/healthy": "", "/endless": "", "/here": "",
		"/sick":   "got status 503 Service Unavailable",
		"/away":   "redirect to another host, localhost",
		"/circle": "too many redirects",
		"/slow":   "deadline exceeded",
	} {
		t.Run(path, func(t *testing.T) {
			started := time.Now()
			_, err := Check(t.Context(), plans.Probe{HTTPGet: plans.HTTPGetAction{URL: server.URL + path}})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if took := time.Since(started); took > time.Minute {
				t.Errorf("took %s", took)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Check(ctx, plans.Probe{HTTPGet: plans.HTTPGetAction{URL: server.URL}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Check(t.Context(), plans.Probe{HTTPGet: plans.HTTPGetAction{URL: "http://127.0.0.1:1"}}); err == nil {
		t.Error("nobody answers, and that is healthy")
	}
}

func TestCheckWithCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/private" && len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := file("cert", "CERTIFICATE", pair.Certificate[0]), file("key", "PRIVATE KEY", key)
	tests := map[string]struct {
		get plans.HTTPGetAction
		err string
	}{
		"CA":                    {get: plans.HTTPGetAction{CACert: certFile}},
		"no CA":                 {err: "unknown authority"},
		"insecure":              {get: plans.HTTPGetAction{Insecure: true, CACert: "/no/such"}},
		"CA is missing":         {get: plans.HTTPGetAction{CACert: "/no/such"}, err: "reading CA certificate"},
		"CA is a key":           {get: plans.HTTPGetAction{CACert: keyFile}, err: "no certificate in"},
		"client certificate":    {get: plans.HTTPGetAction{URL: "/private", CACert: certFile, ClientCert: certFile, ClientKey: keyFile}},
		"no client certificate": {get: plans.HTTPGetAction{URL: "/private", CACert: certFile}, err: "401"},
		"key is missing": {get: plans.HTTPGetAction{CACert: certFile, ClientCert: certFile, ClientKey: "/no/such"},
			err: "reading client certificate"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.get.URL = server.URL + test.get.URL
			seen, err := Check(t.Context(), plans.Probe{TimeoutSeconds: 10, HTTPGet: test.get})
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
			var want Certificates
			if !strings.Contains(test.err, "reading") && !strings.Contains(test.err, "no certificate in") {
				want.Server = server.Certificate().NotAfter.UTC()
			}
			if test.get.ClientKey == keyFile {
				want.Client = want.Server
			}
			if seen != want {
				t.Errorf("saw %+v, want %+v", seen, want)
			}
		})
	}
}

// What was seen goes into the status, through the Secret and back, and stays there while nothing is seen.
func TestRecord(t *testing.T) {
	end := time.Date(2027, 5, 6, 7, 8, 9, 0, time.UTC)
	status := Record(plans.ProbeStatus{Healthy: true}, Certificates{Server: end, Client: end.AddDate(1, 0, 0)})
	raw, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"healthy":true,"serverCertificateNotAfter":"2027-05-06T07:08:09Z","clientCertificateNotAfter":"2028-05-06T07:08:09Z"}`
	if string(raw) != want {
		t.Errorf("got %s", raw)
	}
	var read plans.ProbeStatus
	if err := json.Unmarshal(raw, &read); err != nil || read != status {
		t.Errorf("read %+v, %v", read, err)
	}
	if got := Record(read, Certificates{}); got != status {
		t.Errorf("got %+v", got)
	}
}

// A certificate that has expired is refused, and its end is told nevertheless.
func TestExpiredCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.AddDate(-1, 0, 0), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	seen, err := Check(t.Context(), plans.Probe{TimeoutSeconds: 10, HTTPGet: plans.HTTPGetAction{URL: server.URL, CACert: ca}})
	if err == nil || !strings.Contains(err.Error(), "expired") || seen.Server != end {
		t.Errorf("got %v, saw %+v", err, seen)
	}
}

func TestCount(t *testing.T) {
	tests := map[string]struct {
		probe   plans.Probe
		answers string
		want    []plans.ProbeStatus
	}{
		"defaults": {
			answers: "-++---+",
			want: []plans.ProbeStatus{
				{FailureCount: 1}, {Healthy: true, SuccessCount: 1}, {Healthy: true, SuccessCount: 1}, {Healthy: true, FailureCount: 1},
				{Healthy: true, FailureCount: 2}, {FailureCount: 3}, {Healthy: true, SuccessCount: 1},
			},
		},
		"thresholds": {
			probe:   plans.Probe{SuccessThreshold: 2, FailureThreshold: 2},
			answers: "+-++-+--",
			want: []plans.ProbeStatus{
				{SuccessCount: 1}, {FailureCount: 1}, {SuccessCount: 1}, {Healthy: true, SuccessCount: 2}, {Healthy: true, FailureCount: 1},
				{Healthy: true, SuccessCount: 1}, {Healthy: true, FailureCount: 1}, {FailureCount: 2},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var status plans.ProbeStatus
			var got []plans.ProbeStatus
			for _, answer := range test.answers {
				status = Count(test.probe, status, answer == '+')
				got = append(got, status)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
