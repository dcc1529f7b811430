package pki

import (
	"crypto/x509"
	"net"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func issue(t *testing.T, req Request, signer *Pair, at time.Time) *Pair {
	t.Helper()
	pair, err := Issue(req, signer, at)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func leafRequest() Request {
	return Request{
		CommonName: "leaf", Organization: []string{"a"}, Usage: x509.ExtKeyUsageServerAuth,
		DNSNames: []string{"hub.example.com"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Lifetime: LeafLifetime,
	}
}

var caRequest = Request{CommonName: "ca", IsCA: true, Lifetime: CALifetime}

func TestIssuedCertificateVerifies(t *testing.T) {
	ca := issue(t, caRequest, nil, now)
	leaf := issue(t, leafRequest(), ca, now)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	for _, host := range []string{"hub.example.com", "127.0.0.1"} {
		if _, err := leaf.Cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: host}); err != nil {
			t.Errorf("verifying for %s: %v", host, err)
		}
	}
	client := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := leaf.Cert.Verify(client); err == nil {
		t.Error("a serving certificate was accepted from a client")
	}
}

func TestNothingOutlivesItsSigner(t *testing.T) {
	ca := issue(t, Request{CommonName: "ca", IsCA: true, Lifetime: time.Hour}, nil, now)
	if leaf := issue(t, leafRequest(), ca, now); leaf.Cert.NotAfter.After(ca.Cert.NotAfter) {
		t.Errorf("the leaf ends at %s, its signer at %s", leaf.Cert.NotAfter, ca.Cert.NotAfter)
	}
}

func TestServes(t *testing.T) {
	ca, other := issue(t, caRequest, nil, now), issue(t, caRequest, nil, now)
	leaf := issue(t, leafRequest(), ca, now)
	change := func(f func(*Request)) Request {
		req := leafRequest()
		f(&req)
		return req
	}
	for _, test := range []struct {
		name   string
		req    Request
		signer *Pair
		at     time.Time
		want   bool
	}{
		{"fresh", leafRequest(), ca, now, true},
		{"any signer", leafRequest(), nil, now, true},
		{"a third left", leafRequest(), ca, now.Add(LeafLifetime * 2 / 3), true},
		{"less than a third left", leafRequest(), ca, now.Add(LeafLifetime*2/3 + time.Second), false},
		{"not valid yet", leafRequest(), ca, now.Add(-2 * localTimeSkew), false},
		{"another signer of the same name", leafRequest(), other, now, false},
		{"another name", change(func(r *Request) { r.CommonName = "other" }), ca, now, false},
		{"another host", change(func(r *Request) { r.DNSNames = []string{"other.example.com"} }), ca, now, false},
		{"another address", change(func(r *Request) { r.IPs = nil }), ca, now, false},
		{"another group", change(func(r *Request) { r.Organization = []string{"system:masters"} }), ca, now, false},
		{"an authority", change(func(r *Request) { r.IsCA = true }), ca, now, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := leaf.Serves(test.req, test.signer, test.at); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestClockOfLocalTime: what was issued while the clock was ahead by the most that a local time is ahead of UTC is valid at once when the
// clock is corrected.
func TestClockOfLocalTime(t *testing.T) {
	ahead := now.Add(14 * time.Hour)
	ca := issue(t, Request{CommonName: "ca", IsCA: true, Lifetime: CALifetime}, nil, ahead)
	leaf := issue(t, leafRequest(), ca, ahead)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	options := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := leaf.Cert.Verify(options); err != nil {
		t.Error(err)
	}
}

// TestEnsureUnderEndingAuthority: a certificate that is cut to the end of its authority is kept until a third of its own lifetime is left.
func TestEnsureUnderEndingAuthority(t *testing.T) {
	const day = 24 * time.Hour
	ca := issue(t, Request{CommonName: "ca", IsCA: true, Lifetime: 90 * day}, nil, now)
	data := map[string][]byte{}
	for _, tt := range []struct {
		at   time.Duration
		want bool
	}{{0, true}, {time.Hour, false}, {59 * day, false}, {61 * day, true}, {61*day + time.Hour, false}} {
		if _, changed, err := Ensure(data, "tls.crt", "tls.key", leafRequest(), ca, now.Add(tt.at)); err != nil || changed != tt.want {
			t.Errorf("after %s: changed %v, want %v: %v", tt.at, changed, tt.want, err)
		}
	}
}

func TestParse(t *testing.T) {
	first, second := issue(t, caRequest, nil, now), issue(t, caRequest, nil, now)
	firstKey, err := first.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	secondKey, err := second.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := Parse(first.CertPEM(), firstKey)
	if err != nil {
		t.Fatal(err)
	}
	if !parsed.Cert.Equal(first.Cert) {
		t.Error("another certificate came back")
	}
	for name, pair := range map[string][2][]byte{
		"nothing":              {nil, nil},
		"no certificate":       {firstKey, firstKey},
		"no key":               {first.CertPEM(), first.CertPEM()},
		"half a certificate":   {first.CertPEM()[:100], firstKey},
		"a key of another one": {first.CertPEM(), secondKey},
	} {
		if _, err := Parse(pair[0], pair[1]); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	pair, err := Issue(caRequest, nil, now)
	if err != nil {
		f.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pair.CertPEM(), key)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"), key)
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		parsed, err := Parse(cert, key)
		if err == nil && (parsed.Cert == nil || parsed.Key == nil) {
			t.Error("accepted a pair that is not complete")
		}
	})
}
