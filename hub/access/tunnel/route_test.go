package tunnel

import (
	"errors"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/wait"
	"github.com/drover-dev/drover/tunnel/wire"
)

// TestDialSession: a session of a route is used though there is a newer one, until it has ended.
func TestDialSession(t *testing.T) {
	h := startHub(t, Limits{})
	first := h.raw(t, "one")
	route, _ := h.Route("one")
	h.raw(t, "one")
	wait.Until(t, 10*time.Second, "there are two sessions", func() bool { return len(h.of("one")) == 2 })
	newer := h.of("one")[1].id()
	if newer == route.Session {
		t.Fatal("two sessions have the same identity")
	}
	through := func() int64 {
		t.Helper()
		conn, err := h.DialSession(t.Context(), "one", route.Session, "tcp", "10.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		used, ok := h.RouteOf("one", route.Session)
		if !ok || used.Agent.Key != "one" {
			t.Errorf("the route is %+v", used)
		}
		return used.Session
	}
	if got := through(); got != route.Session {
		t.Errorf("dialed through session %d, want %d", got, route.Session)
	}
	// The agent of this session learns of the connection.
	_, message, err := first.ReadMessage()
	if header, _, parseErr := wire.ParseHeader(message); err != nil || parseErr != nil || header.Type != wire.Connect {
		t.Errorf("the agent of the session got %v, %v, %v", header, err, parseErr)
	}
	_ = first.Close()
	wait.Until(t, 10*time.Second, "the session has ended", func() bool { return len(h.of("one")) == 1 })
	if got := through(); got != newer {
		t.Errorf("dialed through session %d when the session has ended, want %d", got, newer)
	}
	if _, err := h.DialSession(t.Context(), "other", route.Session, "tcp", "10.0.0.1:80"); !errors.As(err, new(*NoSessionError)) {
		t.Errorf("a key without a session: %v", err)
	}
}

// TestRoute: the route to an agent names its session, and whether the agent responds.
func TestRoute(t *testing.T) {
	h := startHub(t, Limits{Ping: 300 * time.Millisecond, Suspect: 300 * time.Millisecond, Timeout: time.Minute, SiblingTimeout: time.Minute})
	if route, ok := h.Route("one"); ok {
		t.Errorf("a route without a session: %+v", route)
	}
	h.raw(t, "one")
	first, ok := h.Route("one")
	if !ok || first.Agent.Key != "one" || first.Session == 0 {
		t.Errorf("the route is %+v", first)
	}
	wait.Until(t, 10*time.Second, "the agent that answers no ping is doubted", func() bool {
		route, ok := h.Route("one")
		return ok && route.Suspect && route.Session == first.Session
	})
	second := h.raw(t, "one")
	go func() {
		for {
			if _, _, err := second.ReadMessage(); err != nil {
				return
			}
		}
	}()
	wait.Until(t, 10*time.Second, "the route is the other session", func() bool {
		route, ok := h.Route("one")
		return ok && route.Session != first.Session && !route.Suspect
	})
}
