package tunnel

import (
	"testing"
	"time"
)

// TestRoute: the way to an agent names its session, and says when the agent gives no sign of life.
func TestRoute(t *testing.T) {
	h := startHub(t, Limits{Ping: 300 * time.Millisecond, Doubt: 300 * time.Millisecond, Dead: time.Minute, Deserted: time.Minute})
	if way, ok := h.Route("one"); ok {
		t.Errorf("a way to nobody: %+v", way)
	}
	h.raw(t, "one")
	first, ok := h.Route("one")
	if !ok || first.Agent.Key != "one" || first.Session == 0 {
		t.Errorf("the way is %+v", first)
	}
	eventually(t, "the agent that answers no ping is doubted", func() bool {
		way, ok := h.Route("one")
		return ok && way.Doubtful && way.Session == first.Session
	})
	second := h.raw(t, "one")
	go func() {
		for {
			if _, _, err := second.ReadMessage(); err != nil {
				return
			}
		}
	}()
	eventually(t, "the way is the other session", func() bool {
		way, ok := h.Route("one")
		return ok && way.Session != first.Session && !way.Doubtful
	})
}
