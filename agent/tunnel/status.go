package tunnel

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// counters are the source of the metrics, and the observer of the sessions.
type counters struct {
	attempts, lost                         atomic.Int64
	open, streams, refused, received, sent atomic.Int64
}

// Streams implements session.Observer.
func (n *counters) Streams(change int) { n.open.Add(int64(change)) }

// Copied implements session.Observer.
func (n *counters) Copied(toHub, fromHub int) {
	n.sent.Add(int64(toHub))
	n.received.Add(int64(fromHub))
}

// What else a session does is not counted.

// Sent implements session.Observer.
func (n *counters) Sent(int) {}

// Received implements session.Observer.
func (n *counters) Received(int) {}

// Paused implements session.Observer.
func (n *counters) Paused(int) {}

// Queued implements session.Observer.
func (n *counters) Queued(time.Duration) {}

// RoundTrip implements session.Observer.
func (n *counters) RoundTrip(time.Duration) {}

// Shed implements session.Observer.
func (n *counters) Shed() {}

// Violation implements session.Observer.
func (n *counters) Violation() {}

// Status is the state of a Client, for health and metrics.
type Status struct {
	// Sessions is the number of sessions.
	Sessions int
	// LastError is why there is no session; empty if there is one.
	LastError string
	// Since is when the first session was connected, or when the last one ended.
	Since time.Time
	// Attempts is the number of attempts to connect, Lost that of sessions that have ended.
	Attempts, Lost int64
	// OpenStreams and Streams are the open streams and all streams since the start, Refused the dials that were refused or have failed.
	OpenStreams, Streams, Refused int64
	// Received and Sent are the bytes of all streams.
	Received, Sent int64
}

// Status returns the state of the client.
func (c *Client) Status() Status {
	c.mu.Lock()
	s := Status{Sessions: len(c.sessions), LastError: c.lastError, Since: c.since}
	c.mu.Unlock()
	n := &c.counters
	s.Attempts, s.Lost = n.attempts.Load(), n.lost.Load()
	s.OpenStreams, s.Streams, s.Refused = n.open.Load(), n.streams.Load(), n.refused.Load()
	s.Received, s.Sent = n.received.Load(), n.sent.Load()
	return s
}

// attemptFailed records and logs a failed attempt. While there is a session, a failed attempt for an additional one is not an error.
func (c *Client) attemptFailed(ctx context.Context, err error, sessions int, retryIn time.Duration) {
	retryIn = retryIn.Round(time.Millisecond)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errConnected):
		c.Log.Debug("The hub's load balancer has chosen a replica that already has a session")
	case sessions > 0:
		c.Log.Info("Connecting an additional tunnel failed", "error", err, "retryIn", retryIn)
	default:
		c.mu.Lock()
		c.lastError = err.Error()
		since := c.since
		c.mu.Unlock()
		c.Log.Warn("Connecting the tunnel failed", "error", err, "since", since.UTC().Format(time.RFC3339), "retryIn", retryIn)
	}
}
