package tunnel

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"

	agent "github.com/drover-dev/drover/agent/tunnel"
	"github.com/drover-dev/drover/e2e/relay"
	"github.com/drover-dev/drover/hub/access/tunnel"
	"github.com/drover-dev/drover/hub/testenv/wait"
	"github.com/drover-dev/drover/tunnel/session"
)

// quiet are the options of a hub whose log nobody reads.
var quiet = tunnel.Options{Logger: logr.Discard(), Limits: patient}

// patient are the limits of a hub that waits for an agent as long as the library does, so that no session ends where the whole process
// stands still for some seconds. How soon the session of a silent agent ends is no subject here.
var patient = tunnel.Limits{Limits: session.Limits{Write: time.Minute}, Timeout: time.Minute, SiblingTimeout: time.Minute}

func init() { logrus.SetOutput(io.Discard) }

// hub is one of the two servers that are compared.
type hub struct {
	http.Handler
	dial      func(ctx context.Context, key, network, address string) (net.Conn, error)
	connected func(key string) bool
	server    *httptest.Server
}

// ours is the hub's own server, library that of the library.
func ours(t testing.TB, opts tunnel.Options) *hub {
	m := tunnel.New(opts)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.Serve(w, r, tunnel.Agent{Key: keyOf(r)})
	})
	h := serve(t, &hub{Handler: handler, dial: m.Dial, connected: m.Connected})
	t.Cleanup(func() { m.Disconnect(func(tunnel.Agent) bool { return true }, "the test is over") })
	return h
}

func library(t testing.TB) *hub {
	s := remotedialer.New(func(r *http.Request) (string, bool, error) { return keyOf(r), true, nil },
		remotedialer.DefaultErrorWriter)
	return serve(t, &hub{Handler: s, connected: s.HasSession, dial: func(ctx context.Context, key, network, address string) (net.Conn, error) {
		return s.Dialer(key)(ctx, network, address)
	}})
}

// serve starts a hub. At the end its sockets are cut: the library would take a minute to end what is frozen.
func serve(t testing.TB, h *hub) *hub {
	var mu sync.Mutex
	var conns []net.Conn
	h.server = httptest.NewUnstartedServer(h)
	h.server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
		}
	}
	h.server.Start()
	t.Cleanup(func() {
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		h.server.Close()
	})
	return h
}

// both runs a test on the library and on the hub, and tells it which one it is.
func both(t *testing.T, test func(t *testing.T, h *hub, isLibrary bool)) {
	t.Parallel()
	t.Run("library", func(t *testing.T) { t.Parallel(); test(t, library(t), true) })
	t.Run("hub", func(t *testing.T) { t.Parallel(); test(t, ours(t, quiet), false) })
}

func (h *hub) url() string { return "ws" + strings.TrimPrefix(h.server.URL, "http") }

func header(key string) http.Header { return http.Header{"Authorization": {"Bearer " + key}} }

// agent runs the library's agent until the test or ctx ends. dial is how it reaches targets, through how it reaches the hub; both may be
// nil.
func (h *hub) agent(ctx context.Context, t testing.TB, key string, dial remotedialer.Dialer, through *wireTap) {
	t.Helper()
	dialer := &websocket.Dialer{}
	if through != nil {
		dialer.NetDialContext = through.dial
	}
	connected := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = remotedialer.ConnectToProxyWithDialer(ctx, h.url(), header(key), func(string, string) bool { return true }, dialer, dial,
			func(context.Context, *remotedialer.Session) error { close(connected); return nil })
	}()
	select {
	case <-connected:
	case <-time.After(time.Minute):
		t.Fatal("the agent did not connect")
	}
	wait.Until(t, time.Minute, "the hub has the session", func() bool { return h.connected(key) })
}

// ownAgent runs this repository's agent until the test or ctx ends. server is the address of the hub, or of what is between it and the
// agent; empty is the hub's. dial is how it reaches targets; nil dials everything.
func (h *hub) ownAgent(ctx context.Context, t testing.TB, key, server string, dial agent.Dial) {
	t.Helper()
	if server == "" {
		server = h.server.URL
	}
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	ctx, cancel := context.WithCancel(ctx)
	client := agent.New(agent.Options{Agent: "cluster/test", Dial: dial, Log: slog.New(slog.DiscardHandler),
		Access: func(context.Context) (agent.Access, error) { return agent.Access{Server: server, Token: key}, nil }})
	done := make(chan struct{})
	go func() {
		defer close(done)
		client.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	wait.Until(t, time.Minute, "the agent is connected", func() bool { return client.Status().Sessions == 1 })
	wait.Until(t, time.Minute, "the hub has the session", func() bool { return h.connected(key) })
}

// raw connects as an agent that the test plays itself.
func (h *hub) raw(t testing.TB, key string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.DefaultDialer.Dial(h.url(), header(key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.Close() })
	wait.Until(t, time.Minute, "the hub has the session", func() bool { return h.connected(key) })
	return ws
}

func (h *hub) open(t testing.TB, key, address string) net.Conn {
	t.Helper()
	conn, err := h.dial(context.Background(), key, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { go conn.Close() })
	return conn
}

// network is what is between this repository's agent and the hub. It can be cut or frozen.
type network struct {
	*relay.Relay
	url string
}

func (h *hub) relay(t testing.TB) network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := relay.New(listener, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", h.server.Listener.Addr().String())
	}, 1)
	t.Cleanup(r.Close)
	return network{r, "http://" + listener.Addr().String()}
}

// wireTap is the network between an agent of the library and the hub. It can freeze: nothing arrives any more, and nobody is told.
type wireTap struct {
	net.Dialer
	mu     sync.Mutex
	frozen chan struct{}
	conns  []net.Conn
}

func newWireTap(t testing.TB) *wireTap {
	w := &wireTap{frozen: make(chan struct{})}
	t.Cleanup(w.cut)
	return w
}

func (w *wireTap) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := w.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conn)
	return &tapped{Conn: conn, frozen: w.frozen, closed: make(chan struct{})}, nil
}

func (w *wireTap) freeze() { close(w.frozen) }

// cut ends all connections.
func (w *wireTap) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}

type tapped struct {
	net.Conn
	frozen, closed chan struct{}
	once           sync.Once
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wait()
	return n, err
}

func (c *tapped) Write(p []byte) (int, error) {
	c.wait()
	return c.Conn.Write(p)
}

func (c *tapped) wait() {
	select {
	case <-c.frozen:
		<-c.closed
	default:
	}
}

// Close leaves the hub in the dark where the network is frozen.
func (c *tapped) Close() error {
	c.once.Do(func() { close(c.closed) })
	select {
	case <-c.frozen:
		return nil
	default:
		return c.Conn.Close()
	}
}
