package replicas

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/wait"
)

func request(t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://hub.test"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(HeaderIdentity, "jane")
	return r
}

func send(d *Directory, key string, r *http.Request) (string, error) {
	owner, _ := d.Owner(key)
	response, err := owner.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestForward(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a, b := newReplica(t, "a", ca, nil), newReplica(t, "b", ca, respondWith("b"))
	join(t, a, b)
	b.own.set("c-1", true)
	wait.Until(t, timeout, "the session", func() bool { return a.Directory.Connected("c-1") })

	got, err := send(a.Directory, "c-1", request(t, http.MethodGet, "/k8s/clusters/c-1/api", nil))
	if want := "b GET /k8s/clusters/c-1/api peer=true identity=jane"; err != nil || got != want {
		t.Errorf("the answer is %q, %v; want %q", got, err, want)
	}
	if _, err := send(a.Directory, "c-2", request(t, http.MethodGet, "/k8s/clusters/c-2/api", nil)); !errors.As(err, new(*LostError)) {
		t.Errorf("a request for an unknown session: %v, want a LostError", err)
	}
	again := request(t, http.MethodGet, "/k8s/clusters/c-1/api", nil)
	again.Header.Set(headerForwarded, "b")
	if _, err := send(a.Directory, "c-1", again); !errors.Is(err, ErrLoop) {
		t.Errorf("a request that was forwarded was forwarded again: %v", err)
	}
}

// TestForwardToNextOwner: the first of two owners does not respond.
func TestForwardToNextOwner(t *testing.T) {
	t.Parallel()
	frozen := func(_, to *replica) { to.freezer.freeze(true) }
	gone := func(from, to *replica) {
		_ = to.server.Listener.Close()
		to.server.CloseClientConnections()
		from.peers["b"].closeIdle() // whether a connection that breaks has carried a request is not known
	}
	for _, test := range []struct {
		name, method string
		fault        func(from, to *replica)
		wantAnswer   bool
		wantUnsent   bool
	}{
		{"get from a frozen replica", http.MethodGet, frozen, true, false},
		{"post to a frozen replica", http.MethodPost, frozen, false, false},
		{"get from a stopped replica", http.MethodGet, gone, true, false},
		{"post to a stopped replica", http.MethodPost, gone, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ca := newAuthority(t)
			a, b, c := newReplica(t, "a", ca, nil), newReplica(t, "b", ca, respondWith("b")), newReplica(t, "c", ca, respondWith("c"))
			join(t, a, b, c)
			ask := func() *http.Request {
				if test.method == http.MethodGet {
					return request(t, test.method, "/k8s/clusters/c-1/api", nil)
				}
				return request(t, test.method, "/k8s/clusters/c-1/api", strings.NewReader("x"))
			}
			b.own.set("c-1", true)
			wait.Until(t, timeout, "the session", func() bool { return a.Directory.Connected("c-1") })
			if _, err := send(a.Directory, "c-1", ask()); err != nil {
				t.Fatal(err)
			}
			// The other owner stops soon, so that the one with the fault is asked first.
			c.own.set("c-1", true)
			c.Drain()
			wait.Until(t, timeout, "the other session", func() bool {
				a.mu.RLock()
				defer a.mu.RUnlock()
				return len(a.owners["c-1"]) == 2 && a.peers["c"].draining
			})
			test.fault(a, b)
			got, err := send(a.Directory, "c-1", ask())
			if test.wantAnswer && (err != nil || !strings.HasPrefix(got, "c ")) {
				t.Errorf("the answer is %q, %v; want the one of the other replica", got, err)
			}
			var lost *LostError
			if !test.wantAnswer && (!errors.As(err, &lost) || lost.Unsent != test.wantUnsent) {
				t.Errorf("the answer is %q, %v; want a LostError, unsent %t", got, err, test.wantUnsent)
			}
		})
	}
}

func TestForwardedStreamOfStoppedReplica(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a := newReplica(t, "a", ca, nil)
	b := newReplica(t, "b", ca, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "begin")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	join(t, a, b)
	b.own.set("c-1", true)
	wait.Until(t, timeout, "the session", func() bool { return a.Directory.Connected("c-1") })
	owner, _ := a.Owner("c-1")
	response, err := owner.RoundTrip(request(t, http.MethodGet, "/k8s/clusters/c-1/watch", nil))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(response.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "begin\n" {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	b.freezer.freeze(true)
	begin := time.Now()
	if _, err := lines.ReadString('\n'); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a stream that was cut off ended with %v, want an error", err)
	}
	if took := time.Since(begin); took > timeout {
		t.Errorf("a stream from a frozen replica ended after %s, want about %s", took, heartbeatTimeout)
	}
	_ = response.Body.Close()
}

// TestForwardedUpgrade forwards a request that is upgraded to a stream, as kubectl exec does.
func TestForwardedUpgrade(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a := newReplica(t, "a", ca, nil)
	b := newReplica(t, "b", ca, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("the request cannot be upgraded: %v", err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	}))
	join(t, a, b)
	b.own.set("c-1", true)
	wait.Until(t, timeout, "the session", func() bool { return a.Directory.Connected("c-1") })
	upgrade := func() io.ReadWriteCloser {
		t.Helper()
		r := request(t, http.MethodGet, "/k8s/clusters/c-1/exec", nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "echo")
		owner, _ := a.Owner("c-1")
		response, err := owner.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		conn, both := response.Body.(io.ReadWriteCloser)
		if response.StatusCode != http.StatusSwitchingProtocols || !both {
			t.Fatalf("the answer is %s, and its body is a %T", response.Status, response.Body)
		}
		return conn
	}
	conn := upgrade()
	buffer := make([]byte, 5)
	for _, word := range []string{"hello", "there"} {
		if _, err := io.WriteString(conn, word); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buffer); err != nil || string(buffer) != word {
			t.Errorf("%q came back as %q, %v", word, buffer, err)
		}
	}
	_ = conn.Close()

	conn = upgrade()
	b.freezer.freeze(true)
	begin := time.Now()
	if _, err := io.ReadFull(conn, buffer); err == nil {
		t.Error("something was read from a replica that is frozen")
	}
	if took := time.Since(begin); took > timeout {
		t.Errorf("a connection to a frozen replica ended after %s, want about %s", took, heartbeatTimeout)
	}
	_ = conn.Close()
}

func TestUnauthenticatedClients(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	var asPeer atomic.Int32
	b := newReplica(t, "b", ca, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if FromPeer(r) {
			asPeer.Add(1)
		}
		_, _ = io.WriteString(w, r.Header.Get(HeaderIdentity)+r.Header.Get(headerForwarded))
	}))
	nameless := CertificateRequest()
	nameless.URIs = nil
	server := CertificateRequest()
	server.Usage = x509.ExtKeyUsageServerAuth
	for _, test := range []struct {
		name         string
		certificates []tls.Certificate
		peer         bool
	}{
		{"without a certificate", nil, false},
		{"with a replica's", []tls.Certificate{ca.issue(t, CertificateRequest())}, true},
		{"with a certificate for something else", []tls.Certificate{ca.issue(t, nameless)}, false},
		{"with a server's certificate", []tls.Certificate{ca.issue(t, server)}, false},
		{"with a common name only", []tls.Certificate{ca.issue(t,
			pki.Request{CommonName: "drover-hub-replica", Usage: x509.ExtKeyUsageClientAuth})}, false},
		{"with another authority's", []tls.Certificate{other.issue(t, CertificateRequest())}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			transport := newTransport(&tls.Config{RootCAs: ca.roots, ServerName: "hub.test", Certificates: test.certificates}, true)
			defer transport.CloseIdleConnections()
			for _, path := range []string{"/k8s/clusters/c-1", SessionsPath} {
				r := request(t, http.MethodGet, path, nil)
				r.URL.Host = b.member().Address
				r.Header.Set(headerForwarded, "x")
				before := asPeer.Load()
				response, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				if path == SessionsPath {
					if (response.StatusCode == http.StatusOK) != test.peer {
						t.Errorf("asked for sessions, the replica answers %s", response.Status)
					}
					_ = response.Body.Close()
					continue
				}
				body, _ := io.ReadAll(response.Body)
				if (asPeer.Load() > before) != test.peer || (string(body) == "janex") != test.peer || !test.peer && len(body) > 0 {
					t.Errorf("taken for a replica: %t, with headers %q", asPeer.Load() > before, body)
				}
			}
		})
	}
}
