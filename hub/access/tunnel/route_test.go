package tunnel

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

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
