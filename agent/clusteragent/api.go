package clusteragent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

const (
	headerTimeout = 30 * time.Second
	// idleTimeout is above that of any hub, which is the one to close connections that it keeps for later.
	idleTimeout    = 10 * time.Minute
	maxHeaderBytes = 256 << 10
	copyBytes      = 32 << 10
)

// api answers what the hub dials for the Kubernetes API: a server that forwards to it with the agent's own credential, in the name of a
// user. What is added there is in impersonate.go.
type api struct {
	pipes   *pipes
	server  *http.Server
	proxy   *httputil.ReverseProxy
	allowed map[string]bool
	log     *slog.Logger

	mu sync.Mutex
	// short is how many requests are being answered that have an end; idle is closed when that comes to 0, if somebody waits.
	short int
	idle  chan struct{}

	requests, refused, failed, long atomic.Int64
}

// newAPI makes the server; serve runs it.
func newAPI(kubernetes *rest.Config, allowed []string, log *slog.Logger) (*api, error) {
	target, _, err := rest.DefaultServerUrlFor(kubernetes)
	if err != nil {
		return nil, err
	}
	transport, err := newTransports(kubernetes)
	if err != nil {
		return nil, err
	}
	a := &api{pipes: newPipes(), allowed: map[string]bool{}, log: log}
	for _, group := range allowed {
		a.allowed[group] = true
	}
	toLog := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	a.proxy = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, BufferPool: buffers{}, ErrorLog: toLog, ErrorHandler: a.unreachable,
		Rewrite: func(r *httputil.ProxyRequest) { forward(r, target) },
	}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: toLog}
	return a, nil
}

// dial implements tunnel.Dial.
func (a *api) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network != Network || address != Address {
		return nil, fmt.Errorf("%s %s is nothing that this agent dials; it answers %s %s", network, address, Network, Address)
	}
	return a.pipes.dial(ctx)
}

func (a *api) serve() { _ = a.server.Serve(a.pipes) }

func (a *api) close() { _ = a.server.Close() }

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.requests.Add(1)
	if err := a.checkUser(r.Header); err != nil {
		a.refused.Add(1)
		a.log.Warn("A request of the hub was refused", "reason", err)
		writeStatus(w, http.StatusForbidden, err.Error())
		return
	}
	if r.Header.Get("Upgrade") != "" || isLong(r.URL) {
		a.long.Add(1)
		defer a.long.Add(-1)
	} else {
		a.begin()
		defer a.end()
	}
	a.proxy.ServeHTTP(w, r)
}

// isLong tells requests that go on until somebody ends them.
func isLong(u *url.URL) bool {
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

// quiet returns at a moment when no request with an end is being answered, or when the time is over.
func (a *api) quiet(within time.Duration) {
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
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		a.log.Warn("Requests of the hub are broken off, since the agent stops", "after", within)
	}
}

// unreachable answers in place of a Kubernetes API that does not.
func (a *api) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil || errors.Is(err, context.Canceled) {
		return // there is nobody left to answer
	}
	a.failed.Add(1)
	a.log.Warn("The Kubernetes API cannot be reached", "error", err)
	w.Header().Set("Retry-After", "1")
	writeStatus(w, http.StatusServiceUnavailable, "the cluster's agent cannot reach its Kubernetes API: "+err.Error())
}

// transports are the ways to the Kubernetes API: HTTP/2 for requests, and HTTP/1.1 for connections that are upgraded, which HTTP/2 cannot do.
type transports struct{ requests, upgrades http.RoundTripper }

func newTransports(kubernetes *rest.Config) (transports, error) {
	var t transports
	var err error
	if t.requests, err = rest.TransportFor(kubernetes); err != nil {
		return t, err
	}
	upgrading := rest.CopyConfig(kubernetes)
	upgrading.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.upgrades, err = rest.TransportFor(upgrading)
	return t, err
}

// RoundTrip implements http.RoundTripper.
func (t transports) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.upgrades.RoundTrip(r)
	}
	return t.requests.RoundTrip(r)
}

// buffers are what answers are copied with.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([copyBytes]byte) }}

func (buffers) Get() []byte { return bufferPool.Get().(*[copyBytes]byte)[:] }

func (buffers) Put(b []byte) { bufferPool.Put((*[copyBytes]byte)(b)) }

// apiStatus is how requests go, for metrics.
type apiStatus struct{ Requests, Refused, Failed, Short, Long int64 }

func (a *api) status() apiStatus {
	a.mu.Lock()
	short := a.short
	a.mu.Unlock()
	return apiStatus{Requests: a.requests.Load(), Refused: a.refused.Load(), Failed: a.failed.Load(), Short: int64(short), Long: a.long.Load()}
}
