package tunnel

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// counters are what metrics tell.
type counters struct {
	attempts, lost                         atomic.Int64
	open, streams, refused, received, sent atomic.Int64
}

// Status is how the tunnel is, for health and metrics.
type Status struct {
	// Sessions is how many there are. Problem says why there is none; it is empty when there is one.
	Sessions int
	Problem  string
	// Since is when the first session came, or the last one went.
	Since time.Time
	// Attempts to connect, and sessions Lost that had been made.
	Attempts, Lost int64
	// OpenStreams of the Streams that the hub has opened, and dials that were Refused or failed.
	OpenStreams, Streams, Refused int64
	// Received and Sent are the bytes of all streams.
	Received, Sent int64
}

// Status tells how the tunnel is.
func (c *Client) Status() Status {
	c.mu.Lock()
	s := Status{Sessions: len(c.sessions), Problem: c.problem, Since: c.since}
	c.mu.Unlock()
	n := &c.counters
	s.Attempts, s.Lost = n.attempts.Load(), n.lost.Load()
	s.OpenStreams, s.Streams, s.Refused = n.open.Load(), n.streams.Load(), n.refused.Load()
	s.Received, s.Sent = n.received.Load(), n.sent.Load()
	return s
}

// failed notes an attempt that came to nothing. That a second session does not come is of no concern as long as there is the first.
func (c *Client) failed(ctx context.Context, err error, held int, again time.Duration) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errHeld):
		c.Log.Debug("The hub's load balancer led to a replica that there is a session to")
	case held > 0:
		c.Log.Info("A second session does not come yet", "error", err, "retryIn", again.Round(time.Millisecond))
	default:
		c.mu.Lock()
		c.problem = err.Error()
		since := c.since
		c.mu.Unlock()
		c.Log.Warn("There is no tunnel to the hub", "error", err, "since", since.UTC().Format(time.RFC3339), "retryIn", again.Round(time.Millisecond))
	}
}
