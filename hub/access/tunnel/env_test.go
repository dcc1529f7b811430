package tunnel

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

// testHub is a Manager behind a server that takes the key from the request's query.
type testHub struct {
	*Manager
	url string
}

func startHub(t *testing.T, limits Limits) *testHub {
	t.Helper()
	logrus.SetOutput(io.Discard)
	m := New(Options{Logger: logr.Discard(), Registerer: prometheus.NewRegistry(), ReplicaID: "replica-a", Limits: limits})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.Serve(w, r, Agent{Key: r.URL.Query().Get("key"), Identity: r.URL.Query().Get("identity")})
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		m.Disconnect(func(Agent) bool { return true }, "the test is over")
		wait.Until(t, 10*time.Second, "no session is left", func() bool { return m.count() == 0 })
	})
	return &testHub{m, "ws" + strings.TrimPrefix(server.URL, "http") + "/?key="}
}

// connect runs the library's agent until the test ends or stop is called.
func (h *testHub) connect(t *testing.T, key string, dial remotedialer.Dialer) (stop func()) {
	t.Helper()
	before := len(h.of(key))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = remotedialer.ConnectToProxyWithDialer(ctx, h.url+key, nil, func(string, string) bool { return true }, &websocket.Dialer{}, dial, nil)
	}()
	wait.Until(t, 10*time.Second, "the agent is connected", func() bool { return len(h.of(key)) > before })
	return func() { cancel(); <-done }
}

func (h *testHub) of(key string) []*agentSession {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.keys[key]
}

func (h *testHub) dial(t *testing.T, key, address string) net.Conn {
	t.Helper()
	conn, err := h.Dial(t.Context(), key, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
