package tunnel

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/hub/testenv/tunneltest"
	"github.com/drover-dev/drover/hub/testenv/wait"
)

func TestDial(t *testing.T) {
	hub := startHub(t, Limits{})
	hub.connect(t, "c-m-1", nil)
	conn := hub.dial(t, "c-m-1", tunneltest.Listen(t, tunneltest.Echo))
	for _, text := range []string{"hello", strings.Repeat("x", 100<<10)} {
		go func() { _, _ = io.WriteString(conn, text) }()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
			t.Fatalf("echo of %d bytes came back as %d bytes, %v", len(text), len(got), err)
		}
	}
}

func TestDialWithoutAgent(t *testing.T) {
	hub := startHub(t, Limits{})
	_, err := hub.Dial(t.Context(), "c-m-1", "tcp", "127.0.0.1:1")
	if none := (*NoSessionError)(nil); !errors.As(err, &none) || none.Key != "c-m-1" {
		t.Errorf("Dial answers %v, not that c-m-1 has no session", err)
	}
}

func TestDialRefused(t *testing.T) {
	hub := startHub(t, Limits{})
	hub.connect(t, "c-m-1", nil)
	good := hub.dial(t, "c-m-1", tunneltest.Listen(t, tunneltest.Echo))
	_, err := io.ReadAll(hub.dial(t, "c-m-1", "127.0.0.1:1"))
	if remote := (*RemoteError)(nil); !errors.As(err, &remote) || !strings.Contains(remote.Text, "connection refused") {
		t.Errorf("reading answers %v, not what the agent said", err)
	}
	if _, err := io.WriteString(good, "x"); err != nil {
		t.Errorf("another stream of the session: %v", err)
	}
}

func TestKeysAndChanges(t *testing.T) {
	hub := startHub(t, Limits{})
	var mu sync.Mutex
	var changes []string
	hub.OnChange(func(key string) {
		mu.Lock()
		defer mu.Unlock()
		changes = append(changes, key)
	})
	stopB := hub.connect(t, "b", nil)
	stopA1 := hub.connect(t, "a", nil)
	stopA2 := hub.connect(t, "a", nil)
	if got := hub.Keys(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("Keys() = %v", got)
	}
	stopA1()
	wait.Until(t, 10*time.Second, "one session of a is left", func() bool { return len(hub.of("a")) == 1 })
	if !hub.Connected("a") {
		t.Error("a is not connected though it has a session")
	}
	stopA2()
	stopB()
	wait.Until(t, 10*time.Second, "no session is left", func() bool { return len(hub.Keys()) == 0 })
	wait.Until(t, 10*time.Second, "the call about the last one, which comes afterwards", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(changes) >= 4
	})
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(changes)
	if !slices.Equal(changes, []string{"a", "a", "b", "b"}) {
		t.Errorf("changes %v: each key should have come and gone once", changes)
	}
}

func TestReplicaHeaders(t *testing.T) {
	hub := startHub(t, Limits{})
	hub.opts.Replicas = func() int { return 3 }
	ws, response, err := websocket.DefaultDialer.Dial(hub.url+"a", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if id, count := response.Header.Get(ReplicaHeader), response.Header.Get(ReplicasHeader); id != "replica-a" || count != "3" {
		t.Errorf("replica %q of %q", id, count)
	}
}

// TestSecondSessionToSameReplica: an agent that connects to a second replica must not get a second session to the first one.
func TestSecondSessionToSameReplica(t *testing.T) {
	h := startHub(t, Limits{})
	for _, test := range []struct {
		name, key, held string
		connected       bool
		want            int
	}{
		{name: "held", key: "a", held: "replica-b,replica-a", connected: true, want: http.StatusConflict},
		{name: "held as the agent believes, but the session is gone here", key: "b", held: "replica-a", want: http.StatusSwitchingProtocols},
		{name: "another is held", key: "c", held: "replica-b", connected: true, want: http.StatusSwitchingProtocols},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.connected {
				h.connect(t, test.key, nil)
			}
			ws, response, err := websocket.DefaultDialer.Dial(h.url+test.key, http.Header{HeldHeader: {test.held}})
			if err == nil {
				defer ws.Close()
			}
			if response == nil || response.StatusCode != test.want || response.Header.Get(ReplicaHeader) != "replica-a" ||
				response.Header.Get(ReplicasHeader) != "1" {
				t.Errorf("the answer is %+v, %v", response, err)
			}
		})
	}
}

func TestDisconnect(t *testing.T) {
	hub := startHub(t, Limits{})
	hub.connect(t, "stays", nil)
	ws, _, err := websocket.DefaultDialer.Dial(hub.url+"goes&identity=ns/agent-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	wait.Until(t, 10*time.Second, "it is connected", func() bool { return hub.Connected("goes") })
	hub.Disconnect(func(a Agent) bool { return a.Identity == "ns/agent-1" }, "the agent was revoked")
	_, _, err = ws.NextReader()
	if !websocket.IsCloseError(err, websocket.ClosePolicyViolation) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("the agent sees %v", err)
	}
	wait.Until(t, 10*time.Second, "only the other one is left", func() bool { return slices.Equal(hub.Keys(), []string{"stays"}) })
}

func TestDrain(t *testing.T) {
	hub := startHub(t, Limits{})
	for _, key := range []string{"a", "a", "b", "b"} {
		hub.connect(t, key, nil)
	}
	order := hub.roundRobin()
	if len(order) != 4 || order[0].agent.Key == order[1].agent.Key || order[2].agent.Key == order[3].agent.Key {
		t.Error("a key loses its second session before every key has lost its first")
	}
	ws := hub.raw(t, "c")
	result := make(chan error, 1)
	go func() {
		_, _, err := ws.NextReader()
		for err == nil {
			_, _, err = ws.NextReader()
		}
		_ = ws.Close()
		result <- err
	}()
	hub.Drain(t.Context(), 200*time.Millisecond)
	if keys := hub.Keys(); len(keys) > 0 {
		t.Errorf("%v have a session when all is drained", keys)
	}
	if err := <-result; !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("an agent got %v", err)
	}
	_, response, err := websocket.DefaultDialer.Dial(hub.url+"a", nil)
	if err == nil || response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("while draining a new agent gets %v, %v", response, err)
	}
}
