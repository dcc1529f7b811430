package handshakes

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines is a log.
type lines struct {
	sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) text() string {
	l.Lock()
	defer l.Unlock()
	return l.String()
}

// serve serves "ok" and the protocol of the request until the test ends, and returns a client, the address and what is logged.
func serve(t *testing.T, timeout time.Duration) (*http.Client, string, *lines) {
	t.Helper()
	// It brings a certificate and a client that trusts it.
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "ok "+r.Proto)
	}))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	logged := &lines{}
	server := &http.Server{Handler: secure.Config.Handler, TLSConfig: secure.TLS, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(Listen(listener, secure.TLS, timeout, log.New(logged, "", 0))) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving ended with %v", err)
		}
	})
	return secure.Client(), listener.Addr().String(), logged
}

func get(t *testing.T, client *http.Client, address string) string {
	t.Helper()
	answer, err := client.Get("https://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// TestServes: a client that sends nothing holds up no other one, and HTTP/2 is agreed upon as with net/http's own handshake.
func TestServes(t *testing.T) {
	client, address, logged := serve(t, time.Minute)
	for range 10 {
		dial(t, address)
	}
	if got := get(t, client, address); got != "ok HTTP/2.0" {
		t.Errorf("the answer is %q", got)
	}
	if logged.text() != "" {
		t.Errorf("the log has %s", logged.text())
	}
}

// TestFailedHandshakes: a client that ends the handshake, or sends a request without one, is logged, and others are served.
func TestFailedHandshakes(t *testing.T) {
	client, address, logged := serve(t, time.Minute)
	plain := dial(t, address)
	if _, err := io.WriteString(plain, "GET / HTTP/1.1\r\nHost: hub\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(plain); !strings.HasPrefix(string(answer), "HTTP/1.0 400 ") {
		t.Errorf("a request without TLS is answered %q (%v)", answer, err)
	}
	distrusting := tls.Client(dial(t, address), &tls.Config{ServerName: "other.example.com"})
	if err := distrusting.Handshake(); err == nil {
		t.Error("a client trusts any certificate")
	}
	_, _ = io.ReadAll(distrusting.NetConn()) // until the server has ended the connection
	if got := get(t, client, address); got != "ok HTTP/2.0" {
		t.Errorf("the answer is %q", got)
	}
	if n := strings.Count(logged.text(), "TLS handshake error from 127.0.0.1:"); n != 2 {
		t.Errorf("%d failures are logged, want 2:\n%s", n, logged.text())
	}
}

// TestTimeout: the connection of a client that sends nothing is ended.
func TestTimeout(t *testing.T) {
	_, address, _ := serve(t, 10*time.Millisecond)
	if _, err := dial(t, address).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
}

// TestPanic: one in a handshake ends the connection, and not the process.
func TestPanic(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	logged := &lines{}
	config := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { panic("out of order") }}
	listener := Listen(inner, config, time.Minute, log.New(logged, "", 0))
	defer listener.Close()
	if err := tls.Client(dial(t, inner.Addr().String()), &tls.Config{ServerName: "hub.example.com"}).Handshake(); err == nil {
		t.Error("the handshake succeeds")
	}
	if got := logged.text(); !strings.Contains(got, "panic in the TLS handshake with 127.0.0.1:") || !strings.Contains(got, "out of order") {
		t.Errorf("the log has %s", got)
	}
}

// TestClose: handshakes end with the listener.
func TestClose(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := Listen(inner, &tls.Config{}, time.Hour, log.New(io.Discard, "", 0))
	conn := dial(t, inner.Addr().String())
	accepted := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		accepted <- err
	}()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept returned %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection was not ended")
	}
}

// TestTemporaryErrors: the listener goes on where net/http does, which waits for a moment.
func TestTemporaryErrors(t *testing.T) {
	inner := &failing{errs: []error{temporary{}, temporary{}, io.ErrUnexpectedEOF}}
	listener := Listen(inner, &tls.Config{}, time.Hour, log.New(io.Discard, "", 0))
	defer listener.Close()
	for i, want := range []error{temporary{}, temporary{}, io.ErrUnexpectedEOF} {
		if _, err := listener.Accept(); !errors.Is(err, want) {
			t.Errorf("error %d is %v, want %v", i, err, want)
		}
	}
}

type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, err
}

func (f *failing) Close() error { return nil }

type temporary struct{}

func (temporary) Error() string   { return "too many open files" }
func (temporary) Timeout() bool   { return false }
func (temporary) Temporary() bool { return true }
