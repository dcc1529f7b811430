package tunnel

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// replicas are the sessions of a hub with several replicas behind a load balancer. Each connection goes to the next replica.
type replicas struct {
	t     *testing.T
	web   *httptest.Server
	names []string
	// refuseSecond refuses a second session to the same replica.
	refuseSecond bool

	mu       sync.Mutex
	next     int
	sessions map[string]*websocket.Conn
	// serving counts the requests at each replica. twice is set when one replica had two sessions at once.
	serving map[string]int
	twice   bool
}

func newReplicas(t *testing.T, refuseSecond bool, names ...string) *replicas {
	t.Helper()
	r := &replicas{t: t, names: names, refuseSecond: refuseSecond,
		sessions: map[string]*websocket.Conn{}, serving: map[string]int{}}
	r.web = httptest.NewServer(r)
	t.Cleanup(r.web.Close)
	return r
}

func (h *replicas) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	name := h.names[h.next%len(h.names)]
	h.next++
	// The client knows of a session before this handler goes on, so that the next request is what can be relied on.
	second := h.serving[name] > 0
	h.serving[name]++
	total := slices.Compact(slices.Sorted(slices.Values(h.names)))
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.serving[name]--
	}()
	header := http.Header{replicaHeader: {name}, replicasHeader: {strconv.Itoa(len(total))}}
	if h.refuseSecond && slices.Contains(strings.Split(r.Header.Get(connectedHeader), ","), name) {
		w.Header().Set(replicaHeader, name)
		w.Header().Set(replicasHeader, strconv.Itoa(len(total)))
		w.WriteHeader(http.StatusConflict)
		return
	}
	ws, err := (&websocket.Upgrader{}).Upgrade(w, r, header)
	if err != nil {
		return
	}
	defer ws.Close()
	h.mu.Lock()
	h.twice = h.twice || second
	if h.sessions[name] == nil {
		h.sessions[name] = ws
	}
	h.mu.Unlock()
	for err == nil {
		_, _, err = ws.ReadMessage()
	}
	h.mu.Lock()
	if h.sessions[name] == ws {
		delete(h.sessions, name)
	}
	h.mu.Unlock()
}

func (h *replicas) connected() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name := range h.sessions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (h *replicas) lead(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names, h.next = names, 0
}

// drain closes a session as a replica does that stops.
func (h *replicas) drain(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.sessions[name].WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, "this replica stops"),
		time.Now().Add(time.Second))
}

func (h *replicas) options(sessions int) Options {
	return Options{Agent: "cluster/test", Dial: AllowList(nil), Sessions: sessions, Log: slog.New(slog.DiscardHandler),
		Access: func(context.Context) (Access, error) { return Access{Server: h.web.URL, Token: "credential"}, nil }}
}

func TestTwoSessionsToTwoReplicas(t *testing.T) {
	t.Parallel()
	for name, refuseSecond := range map[string]bool{"hub that refuses doubles": true, "hub that does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := newReplicas(t, refuseSecond, "a", "a", "b", "c")
			client := start(t, hub.options(2))
			eventually(t, "two sessions", func() bool { return client.Status().Sessions == 2 })
			eventually(t, "a session to each of two replicas", func() bool { return slices.Equal(hub.connected(), []string{"a", "b"}) })
			if hub.twice == refuseSecond {
				t.Errorf("a replica had two sessions: %t", hub.twice)
			}
			hub.lead("c")
			hub.drain("a")
			eventually(t, "the session that ended is replaced", func() bool { return slices.Equal(hub.connected(), []string{"b", "c"}) })
			if s := client.Status(); s.LastError != "" || s.Lost != 1 {
				t.Errorf("status is %+v", s)
			}
		})
	}
}

func TestSingleReplicaIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	hub := newReplicas(t, true, "a")
	client := start(t, hub.options(2))
	eventually(t, "a session", func() bool { return client.Status().Sessions == 1 })
	time.Sleep(200 * time.Millisecond)
	if n := client.Status().Attempts; n != 1 {
		t.Errorf("the hub was asked %d times", n)
	}
}

func TestReplicasThatComeBackAreAskedFor(t *testing.T) {
	t.Parallel()
	hub := newReplicas(t, true, "a", "b")
	client := start(t, hub.options(2))
	eventually(t, "two sessions", func() bool { return client.Status().Sessions == 2 })
	hub.lead("a")
	hub.drain("b")
	eventually(t, "the hub says that it has one replica", func() bool {
		client.mu.Lock()
		defer client.mu.Unlock()
		return client.replicas == 1
	})
	hub.lead("b", "a")
	eventually(t, "the replica that came back has a session", func() bool { return slices.Equal(hub.connected(), []string{"a", "b"}) })
}

func TestOneSessionForANode(t *testing.T) {
	t.Parallel()
	hub := newReplicas(t, true, "a", "b")
	client := start(t, hub.options(0))
	eventually(t, "a session", func() bool { return client.Status().Sessions == 1 })
	time.Sleep(200 * time.Millisecond)
	if n := client.Status().Attempts; n != 1 {
		t.Errorf("the hub was asked %d times", n)
	}
	hub.drain("a")
	eventually(t, "a session with another replica", func() bool { return slices.Equal(hub.connected(), []string{"b"}) })
}
