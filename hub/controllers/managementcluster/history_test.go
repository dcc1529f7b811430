package managementcluster

import (
	"testing"
	"time"
)

// TestHistory looks at one cluster at several times. What is asked for is in seconds since the start; -1 is never.
func TestHistory(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(seconds int) time.Time {
		if seconds < 0 {
			return time.Time{}
		}
		return began.Add(time.Duration(seconds) * time.Second)
	}
	var h history
	h.observe("another", &connectionInputs{now: began}) // with the first one it begins
	for _, step := range []struct {
		after                            int
		connected                        bool
		started, connectedSince, missing int
		losses                           int
	}{
		{after: 1, started: 0, connectedSince: -1, missing: 1},
		{after: 3, started: 0, connectedSince: -1, missing: 1},
		{after: 5, connected: true, started: -1, connectedSince: 5, missing: -1},
		{after: 7, connected: true, started: -1, connectedSince: 5, missing: -1},
		{after: 9, started: -1, connectedSince: 5, missing: 9, losses: 1},
		{after: 10, started: -1, connectedSince: 5, missing: 9, losses: 1},
		{after: 11, connected: true, started: -1, connectedSince: 11, missing: -1, losses: 1},
		{after: 12, started: -1, connectedSince: 11, missing: 12, losses: 2},
		{after: 311, connected: true, started: -1, connectedSince: 311, missing: -1, losses: 1},
	} {
		f := connectionInputs{connected: step.connected, now: at(step.after)}
		h.observe("c", &f)
		if !f.started.Equal(at(step.started)) || !f.connectedSince.Equal(at(step.connectedSince)) || !f.lostSince.Equal(at(step.missing)) ||
			f.losses != step.losses {
			t.Errorf("after %d s: %+v, want %+v", step.after, f, step)
		}
	}
	h.forget("c")
	f := connectionInputs{now: at(400)}
	if h.observe("c", &f); !f.started.Equal(began) || f.losses != 0 {
		t.Errorf("of a cluster that was gone in between it knows %+v", f)
	}
}
