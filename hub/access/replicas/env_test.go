package replicas

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/wait"
)

// sessions are the sessions of a replica, which the test adds and removes.
type sessions struct {
	mu       sync.Mutex
	keys     map[string]bool
	onChange []func(string)
}

func (s *sessions) Connected(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key]
}

func (s *sessions) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := []string{}
	for key, there := range s.keys {
		if there {
			keys = append(keys, key)
		}
	}
	return keys
}

func (s *sessions) OnChange(f func(string)) { s.onChange = append(s.onChange, f) }

func (s *sessions) set(key string, there bool) {
	s.mu.Lock()
	s.keys[key] = there
	s.mu.Unlock()
	for _, f := range s.onChange {
		f(key)
	}
}

// authority signs certificates of the replicas of a hub.
type authority struct {
	pair  *pki.Pair
	roots *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	pair, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: time.Hour}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{pair, x509.NewCertPool()}
	a.roots.AddCert(pair.Cert)
	return a
}

func (a *authority) issue(t *testing.T, request pki.Request) tls.Certificate {
	t.Helper()
	request.Lifetime = time.Hour
	pair, err := pki.Issue(request, a.pair, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}
}

// replica is a Directory with fake sessions and a fake server.
type replica struct {
	*Directory
	own     *sessions
	server  *httptest.Server
	freezer *freezer
	changes chan string
}

func newReplica(t *testing.T, id string, ca *authority, handler http.Handler) *replica {
	t.Helper()
	r := &replica{own: &sessions{keys: map[string]bool{}}, changes: make(chan string, 10000)}
	r.Directory = New(Options{
		Local: r.own, ReplicaID: id, Roots: ca.roots,
		TLS: &tls.Config{RootCAs: ca.roots, ServerName: "hub.test", Certificates: []tls.Certificate{ca.issue(t, CertificateRequest())}},
	})
	r.Directory.OnChange(func(key string) { r.changes <- key })
	mux := http.NewServeMux()
	mux.Handle(SessionsPath, r.Directory)
	if handler != nil {
		mux.Handle("/k8s/", handler)
	}
	r.server = httptest.NewUnstartedServer(r.Handler(mux))
	r.freezer = &freezer{Listener: r.server.Listener}
	r.freezer.thawed.L = &r.freezer.mu
	r.server.Listener = r.freezer
	r.server.EnableHTTP2 = true
	r.server.TLS = &tls.Config{
		ClientAuth:   tls.RequestClientCert,
		Certificates: []tls.Certificate{ca.issue(t, pki.Request{Usage: x509.ExtKeyUsageServerAuth, DNSNames: []string{"hub.test"}})},
	}
	r.server.StartTLS()
	t.Cleanup(func() {
		r.freezer.freeze(false)
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

func (r *replica) member() Member {
	return Member{ID: r.opts.ReplicaID, Address: r.freezer.Addr().String()}
}

// join makes the replicas members of one hub.
func join(t *testing.T, replicas ...*replica) {
	t.Helper()
	members := []Member{}
	for _, r := range replicas {
		members = append(members, r.member())
	}
	for _, r := range replicas {
		r.SetMembers(members)
		go func() { _ = r.Start(t.Context()) }()
	}
	for _, r := range replicas {
		wait.Until(t, timeout, "all replicas to hear each other", func() bool { return r.Replicas() == len(replicas) })
	}
}

// timeout is longer than anything takes in these tests, even on a busy machine.
const timeout = time.Minute

// freezer is a listener whose connections can be frozen, as those of a stopped process are.
type freezer struct {
	net.Listener
	mu     sync.Mutex
	thawed sync.Cond
	frozen bool
}

func (f *freezer) freeze(on bool) {
	f.mu.Lock()
	f.frozen = on
	f.mu.Unlock()
	f.thawed.Broadcast()
}

func (f *freezer) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.frozen {
		f.thawed.Wait()
	}
}

func (f *freezer) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &frozenConn{c, f}, nil
}

type frozenConn struct {
	net.Conn
	freezer *freezer
}

func (c *frozenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.freezer.wait()
	return n, err
}

func (c *frozenConn) Write(p []byte) (int, error) {
	c.freezer.wait()
	return c.Conn.Write(p)
}

// respondWith responds with a name.
func respondWith(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s peer=%t identity=%s", name, r.Method, r.URL.Path, FromPeer(r), r.Header.Get(HeaderIdentity))
	})
}
