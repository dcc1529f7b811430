package connlimit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

// serve starts a TLS server below which a Listener is, and returns the Listener, and how to connect to it.
func serve(t *testing.T, limits Limits, handler http.Handler) (*Listener, func(from string) net.Conn, *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	listener := Listen(server.Listener, limits)
	server.Listener = listener
	server.Config.ConnContext = ConnContext
	server.StartTLS()
	t.Cleanup(server.Close)
	dial := func(from string) net.Conn {
		t.Helper()
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	return listener, dial, server.Client()
}

// closed waits until the server has closed a connection that was never answered.
func closed(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open: %v", err)
	}
}

// TestUntrustedConnectionsAreClosed opens more connections than an address, and then all of them, may have: the oldest are closed, and
// those that are trusted never.
func TestUntrustedConnectionsAreClosed(t *testing.T) {
	handler := Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Trust(r.Context(), "", 0) }))
	listener, dial, client := serve(t, Limits{Address: 3, Total: 5}, handler)
	if _, err := client.Get(listenerURL(listener)); err != nil { // kept alive
		t.Fatal(err)
	}
	if got := listener.untrusted(); got != 0 {
		t.Fatalf("%d untrusted connections after a trusted request", got)
	}
	var conns []net.Conn
	open := func(from string, want int) {
		t.Helper()
		conns = append(conns, dial(from))
		wait.Until(t, time.Minute, fmt.Sprintf("%d untrusted connections", want), func() bool { return listener.untrusted() == want })
	}
	for _, want := range []int{1, 2, 3} {
		open("127.0.0.2", want)
	}
	open("127.0.0.2", 3)
	closed(t, conns[0])
	open("127.0.0.3", 4)
	open("127.0.0.3", 5)
	open("127.0.0.4", 5)
	closed(t, conns[1])
	for range 20 {
		open("127.0.0.5", 5)
	}
	if _, err := client.Get(listenerURL(listener)); err != nil {
		t.Errorf("the trusted connection: %v", err)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	wait.Until(t, time.Minute, "no untrusted connections", func() bool { return listener.untrusted() == 0 })
	if len(listener.addresses) != 0 {
		t.Errorf("%d addresses are remembered", len(listener.addresses))
	}
}

func listenerURL(l *Listener) string { return "https://" + l.Addr().String() }

// TestWaitedForGoFirst checks that an untrusted connection for which the hub works is closed after all others.
func TestWaitedForGoFirst(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	listener, dial, client := serve(t, Limits{Address: 2, Total: 2}, Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer Answering(r.Context())()
		close(begun)
		<-end
	})))
	answered := make(chan error, 1)
	go func() {
		_, err := client.Get(listenerURL(listener))
		answered <- err
	}()
	<-begun
	last := dial("127.0.0.1")
	wait.Until(t, time.Minute, "two untrusted connections", func() bool { return listener.untrusted() == 2 })
	for range 10 {
		next := dial("127.0.0.1")
		closed(t, last) // when the next one is accepted
		last = next
	}
	close(end)
	if err := <-answered; err != nil {
		t.Errorf("the request that was being answered: %v", err)
	}
}

// TestBodyThatNeverArrives checks that a connection ends when the body of its request does not come, whether the handler reads it or not,
// and that the time for the body is not one for the answer.
func TestBodyThatNeverArrives(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"read": func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err == nil {
				t.Error("a body was read that was not sent")
			}
		},
		"not read": func(http.ResponseWriter, *http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(bounded{handler, 50 * time.Millisecond})
			t.Cleanup(server.Close)
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx"); err != nil {
				t.Fatal(err)
			}
			closed(t, conn)
		})
	}
	t.Run("arrived", func(t *testing.T) {
		server := httptest.NewServer(bounded{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
			select {
			case <-r.Context().Done():
				t.Error("the request ended with the time for its body")
			case <-time.After(200 * time.Millisecond):
			}
		}), 50 * time.Millisecond})
		t.Cleanup(server.Close)
		response, err := http.Post(server.URL, "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if text, err := bufio.NewReader(response.Body).ReadString(0); text != "hello" || !errors.Is(err, io.EOF) {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// untrusted is how many connections are untrusted.
func (l *Listener) untrusted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.count()
}
