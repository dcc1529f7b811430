package clusteragent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

const (
	headerTimeout = 30 * time.Second
	// idleTimeout is longer than that of the hub, so that the hub closes idle connections.
	idleTimeout     = 10 * time.Minute
	maxHeaderBytes  = 256 << 10
	copyBufferBytes = 32 << 10
	// receiveBufferBytes is how much of a response of the Kubernetes API is received that is not read yet. A user may have more than a
	// thousand, and read none of them; by default each would take 4 MiB.
	receiveBufferBytes = 256 << 10
)

// api is the server that the hub dials: it forwards requests to the Kubernetes API with the agent's own credential, impersonating a user
// (impersonate.go).
type api struct {
	listener *pipeListener
	server   *http.Server
	proxy    *httputil.ReverseProxy
	// allowedGroups are reserved groups that the hub may impersonate.
	allowedGroups []string
	log           *slog.Logger

	mu sync.Mutex
	// short is the number of active requests that are not long-running; idle, if it is set, is closed when that becomes 0.
	short int
	idle  chan struct{}

	requests, refused, failed, long atomic.Int64
}

// newAPI returns the server; serve runs it.
func newAPI(kubernetes *rest.Config, allowedGroups []string, log *slog.Logger) (*api, error) {
	target, _, err := rest.DefaultServerUrlFor(kubernetes)
	if err != nil {
		return nil, err
	}
	transport, err := newTransports(kubernetes)
	if err != nil {
		return nil, err
	}
	a := &api{listener: newPipeListener(), allowedGroups: allowedGroups, log: log}
	debugLog := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	// What has no length, such as watches and logs, is passed on at once without a FlushInterval too.
	a.proxy = &httputil.ReverseProxy{
		Transport: transport, BufferPool: bufferPool{}, ErrorLog: debugLog, ErrorHandler: a.unreachable,
		Rewrite: func(r *httputil.ProxyRequest) { forward(r, target) }, ModifyResponse: checkProtocol,
	}
	a.server = &http.Server{Handler: a, ErrorLog: debugLog,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}
	return a, nil
}

// dial implements tunnel.Dial.
func (a *api) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network != Network || address != Address {
		return nil, fmt.Errorf("%s %s is not allowed by this agent, only %s %s", network, address, Network, Address)
	}
	return a.listener.dial(ctx)
}

func (a *api) serve() { _ = a.server.Serve(a.listener) }

func (a *api) close() { _ = a.server.Close() }

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.requests.Add(1)
	if err := a.checkUser(r.Header); err != nil {
		a.refused.Add(1)
		a.log.Warn("Request of the hub refused", "error", err)
		writeStatus(w, http.StatusForbidden, err.Error())
		return
	}
	if r.Header.Get("Upgrade") != "" || isLongRunning(r.URL) {
		a.long.Add(1)
		defer a.long.Add(-1)
	} else {
		a.begin()
		defer a.end()
	}
	a.proxy.ServeHTTP(w, r)
}

// isLongRunning is true for requests that last until somebody ends them: watches, and logs that are followed.
func isLongRunning(u *url.URL) bool {
	query := u.Query()
	return query.Has("watch") || query.Has("follow")
}

func (a *api) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.short++
}

func (a *api) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.short--; a.short == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// drain waits until no request is active that is not long-running, or until the timeout.
func (a *api) drain(timeout time.Duration) {
	a.mu.Lock()
	if a.short == 0 {
		a.mu.Unlock()
		return
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		a.log.Warn("Aborting requests of the hub, since the agent stops", "after", timeout)
	}
}

// checkProtocol returns an error for a response that switches to another protocol than the one that was requested, which any Pod behind the
// API can send. ReverseProxy refuses it as well, but leaves the connection to the API open.
func checkProtocol(response *http.Response) error {
	requested, got := response.Request.Header.Get("Upgrade"), response.Header.Get("Upgrade")
	if response.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(requested, got) {
		return fmt.Errorf("the response of the Kubernetes API is invalid: it switches to protocol %.50q, and %.50q was requested", got, requested)
	}
	return nil
}

// unreachable responds if the Kubernetes API does not, or not with something that can be passed on. Clients repeat every request that gets
// Retry-After, so only one that cannot have changed anything does.
func (a *api) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil || errors.Is(err, context.Canceled) {
		return // the client has gone
	}
	a.failed.Add(1)
	a.log.Warn("Kubernetes API is unreachable", "error", err)
	var lost *lostError
	switch {
	case !errors.As(err, &lost):
		writeStatus(w, http.StatusBadGateway, "the cluster agent cannot pass the response on: "+err.Error())
	case lost.sent && !repeatable(r):
		writeStatus(w, http.StatusBadGateway, "the Kubernetes API has received the request and did not respond, so it is unknown whether the "+
			"request was carried out: "+err.Error())
	default:
		w.Header().Set("Retry-After", "1")
		writeStatus(w, http.StatusServiceUnavailable, "the cluster agent cannot reach the Kubernetes API: "+err.Error())
	}
}

// lostError is returned for a request to which the Kubernetes API did not respond. sent reports whether there was a connection, so that the
// API may have received the request.
type lostError struct {
	error
	sent bool
}

func (e *lostError) Unwrap() error { return e.error }

// repeatable reports whether a request changes nothing. An upgrade does, also with GET: it may be the start of a command.
func repeatable(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions) && r.Header.Get("Upgrade") == ""
}

// transports uses HTTP/2 for requests to the Kubernetes API, and HTTP/1.1 for upgrades, which HTTP/2 does not support.
type transports struct{ requests, upgrades http.RoundTripper }

func newTransports(kubernetes *rest.Config) (transports, error) {
	var t transports
	var err error
	if t.requests, err = rest.TransportFor(kubernetes); err != nil {
		return t, err
	}
	limitBuffers(t.requests)
	upgrading := rest.CopyConfig(kubernetes)
	upgrading.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.upgrades, err = rest.TransportFor(upgrading)
	return t, err
}

// limitBuffers sets receiveBufferBytes in a transport of client-go, before its first request.
func limitBuffers(transport http.RoundTripper) {
	for {
		switch t := transport.(type) {
		case interface{ WrappedRoundTripper() http.RoundTripper }:
			transport = t.WrappedRoundTripper()
		case *http.Transport:
			if t != http.DefaultTransport {
				t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: receiveBufferBytes}
			}
			return
		default:
			return
		}
	}
}

// RoundTrip implements http.RoundTripper. The error is a *lostError.
func (t transports) RoundTrip(r *http.Request) (*http.Response, error) {
	next := t.requests
	if r.Header.Get("Upgrade") != "" {
		next = t.upgrades
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		return nil, &lostError{err, connected.Load()}
	}
	return response, nil
}

// bufferPool is the pool of the reverse proxy's copy buffers.
type bufferPool struct{}

var buffers = sync.Pool{New: func() any { return new([copyBufferBytes]byte) }}

// Get implements httputil.BufferPool.
func (bufferPool) Get() []byte { return buffers.Get().(*[copyBufferBytes]byte)[:] }

// Put implements httputil.BufferPool.
func (bufferPool) Put(b []byte) { buffers.Put((*[copyBufferBytes]byte)(b)) }

// apiStatus are the counters of requests, for the metrics: all, refused and failed ones since the start, and the active ones.
type apiStatus struct{ Requests, Refused, Failed, Short, Long int64 }

func (a *api) status() apiStatus {
	a.mu.Lock()
	short := a.short
	a.mu.Unlock()
	return apiStatus{Requests: a.requests.Load(), Refused: a.refused.Load(), Failed: a.failed.Load(), Short: int64(short), Long: a.long.Load()}
}
