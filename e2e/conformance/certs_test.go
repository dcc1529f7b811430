//go:build conformance

package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"
)

// authority makes certificates for tests.
type authority struct {
	m    *machine
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newCA(m *machine) *authority {
	a := &authority{m: m}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	var raw []byte
	raw, a.key = a.sign(template, nil)
	a.cert, _ = x509.ParseCertificate(raw)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	return a
}

func (a *authority) sign(template *x509.Certificate, parent *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.m.Fatalf("%s", err)
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.m.Fatalf("%s", err)
	}
	return raw, key
}

// issue makes a certificate for 127.0.0.1 that is good for servers and clients.
func (a *authority) issue() (cert, key []byte) {
	raw, private := a.sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, a.cert)
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.m.Fatalf("%s", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// serve starts a server with a certificate of this authority; with clients it wants to see one of theirs.
func (a *authority) serve(handler http.Handler, clients bool) *httptest.Server {
	pair, err := tls.X509KeyPair(a.issue())
	if err != nil {
		a.m.Fatalf("%s", err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = quiet
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	if clients {
		server.TLS.ClientAuth = tls.RequireAndVerifyClientCert
		server.TLS.ClientCAs = x509.NewCertPool()
		server.TLS.ClientCAs.AddCert(a.cert)
	}
	server.StartTLS()
	a.m.t.Cleanup(server.Close)
	return server
}

// forwardProxy is one that the environment names. It brings hub.example.com to 127.0.0.1 and refuses everything else.
type forwardProxy struct {
	*httptest.Server
	used atomic.Int64
}

func (p *forwardProxy) count() int64 { return p.used.Load() }

func newForwardProxy(m *machine) *forwardProxy {
	p := &forwardProxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.used.Add(1)
		host, port, _ := strings.Cut(r.Host, ":")
		if r.Method != http.MethodConnect || host != "hub.example.com" {
			http.Error(w, "not here", http.StatusForbidden)
			return
		}
		there, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		w.WriteHeader(http.StatusOK)
		here, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		go func() { _, _ = io.Copy(there, here); there.Close() }()
		_, _ = io.Copy(here, there)
	}))
	m.t.Cleanup(p.CloseClientConnections)
	return p
}
