package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/recorder"
	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/response"
)

// TestDownloadsOfOneConnection has an unauthenticated client that begins downloads over one connection and does not read them.
func TestDownloadsOfOneConnection(t *testing.T) {
	dir := t.TempDir()
	agent := filepath.Join(dir, "system-agent-amd64")
	must(t, os.WriteFile(agent, nil, 0o600))
	must(t, os.Truncate(agent, 4<<20)) // more than is sent to a client that does not read
	s := newTestServer(t, dir)
	address := serve(t, s, s.httpServer())
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
	defer transport.CloseIdleConnections()
	codes := map[int]int{}
	for range 40 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/assets/system-agent-amd64", nil)
		must(t, err)
		response, err := transport.RoundTrip(r)
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		codes[response.StatusCode]++
	}
	if codes[http.StatusOK] == 0 || codes[http.StatusOK] > 20 || codes[http.StatusTooManyRequests] != 40-codes[http.StatusOK] {
		t.Errorf("answers by code: %v, want at most 20 downloads", codes)
	}
}

// endingConn closes ended when the server has closed it.
type endingConn struct {
	net.Conn
	ended func()
}

func (c endingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended()
	}
	return n, err
}

// TestUnreadAnswersGoFirst: at the limit, connections on which a credential is verified outlast those whose answers are not read.
func TestUnreadAnswersGoFirst(t *testing.T) {
	s := newTestServer(t, "")
	reviewing, proceed := make(chan struct{}, 1), make(chan struct{})
	s.opts.Client.(*fakeAPI).review = func(string) bool {
		reviewing <- struct{}{}
		<-proceed
		return true
	}
	address := serveWithin(t, s, s.httpServer(), connlimit.Limits{Address: 3, Total: 3})
	// request sends a request over a connection of its own, of which ended is closed with it. It is sent one byte of the answer.
	request := func(path, token string, ended chan<- struct{}) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, //nolint:gosec
			HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1}}
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return endingConn{conn, sync.OnceFunc(func() { close(ended) })}, err
		}
		t.Cleanup(transport.CloseIdleConnections)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := transport.RoundTrip(r)
		if err == nil {
			t.Cleanup(func() { _ = answer.Body.Close() })
		}
		return err
	}
	verified := make(chan error, 1)
	var ended [3]chan struct{}
	for i := range ended {
		ended[i] = make(chan struct{})
	}
	go func() { verified <- request("/version", benchName(0), ended[0]) }()
	receive(t, reviewing)
	must(t, request("/system-agent-install.sh", "", ended[1]))
	must(t, request("/system-agent-install.sh", "", ended[2]))
	for i := range 2 {
		conn, err := net.Dial("tcp", address)
		must(t, err)
		defer func() { _ = conn.Close() }()
		receive(t, ended[1+i]) // the oldest
		if i == 0 {
			select {
			case <-ended[2]:
				t.Error("a connection is closed before an older one")
			default:
			}
		}
	}
	close(proceed)
	must(t, receive(t, verified))
}

// pausedConn is a connection that is not read while it is paused.
type pausedConn struct {
	net.Conn
	paused  *atomic.Bool
	resumed <-chan struct{}
}

func (c pausedConn) Read(p []byte) (int, error) {
	if c.paused.Load() {
		<-c.resumed
	}
	return c.Conn.Read(p)
}

// TestConnectionThatIsNotRead: a client that does not read its connection of HTTP/2 holds no request without end, which a deadline of the
// request would not prevent.
func TestConnectionThatIsNotRead(t *testing.T) {
	s := newTestServer(t, "")
	ended := make(chan error, 1)
	s.opts.Mounts = map[string]http.Handler{"/large": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		response.SetTimeout(w, time.Second)
		for piece := make([]byte, 16<<10); ; {
			if _, err := w.Write(piece); err != nil {
				ended <- err
				return
			}
		}
	})}
	s.handler = s.newHandler()
	server := s.httpServer()
	server.HTTP2.WriteByteTimeout /= 1000
	address := serve(t, s, server)
	var paused atomic.Bool
	resumed := make(chan struct{})
	defer close(resumed)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: 1 << 30, MaxReceiveBufferPerStream: 1 << 30}}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return pausedConn{conn, &paused, resumed}, err
	}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/large", nil)
	must(t, err)
	answer, err := transport.RoundTrip(r)
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	paused.Store(true)
	receive(t, ended)
}

// TestEveryAnswerHasADeadline checks what no handler of the table of routes answers, too.
func TestEveryAnswerHasADeadline(t *testing.T) {
	s := newTestServer(t, "")
	for path, code := range map[string]int{"/cacerts": 200, "//cacerts": 301, "/nothing": 404, "/version": 401} {
		w := recorder.New()
		s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://hub"+path, nil))
		if w.Code/100 != code/100 || w.Deadline.IsZero() {
			t.Errorf("%s: %d, deadline %v", path, w.Code, w.Deadline)
		}
	}
	// The body of an update takes a slow machine minutes before there is an answer, and so does an answer with a plan.
	update := httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/ns/secrets/x", nil)
	read := httptest.NewRequest(http.MethodGet, "/api/v1", nil)
	read.Header.Set("Authorization", "Bearer "+machineToken)
	for r, code := range map[*http.Request]int{update: http.StatusUnauthorized, read: http.StatusOK} {
		w := recorder.New()
		s.handler.ServeHTTP(w, r)
		if left := time.Until(w.Deadline); w.Code != code || left < 3*time.Minute {
			t.Errorf("%s: %d, which must be sent and read within %s", r.Method, w.Code, left)
		}
	}
}
