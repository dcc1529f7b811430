package tunnel

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/drover-dev/drover/tunnel/session"
)

const (
	never = time.Duration(math.MaxInt64)
	// replicaCheckInterval is how often a hub that has only one replica is checked for others.
	replicaCheckInterval = 10 * time.Minute
)

// Client keeps sessions to a hub.
type Client struct {
	Options
	counters counters
	shared   *session.Shared

	mu       sync.Mutex
	sessions map[*hubSession]struct{}
	// replicas is the number of replicas according to the hub; 0 if it has not sent it. mostReplicas is the largest number so far.
	replicas, mostReplicas int
	// longestSession is the longest duration of the sessions that have ended since Run read it; 0 if none has.
	longestSession time.Duration
	// lastError is why there is no session; empty if there is one. since is when that changed.
	lastError string
	since     time.Time
	// changed is closed and replaced when a session ends.
	changed chan struct{}
}

// New returns a Client; Run connects it.
func New(o Options) *Client {
	o.Sessions = max(o.Sessions, 1)
	c := &Client{Options: o, sessions: map[*hubSession]struct{}{}, changed: make(chan struct{}), since: time.Now(), lastError: "not tried yet"}
	c.shared = session.NewShared(limits, &c.counters)
	return c
}

// Run keeps the sessions connected until ctx is done. Then it closes them and returns when all their goroutines have ended.
func (c *Client) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	var delays backoffs
	for {
		connected, changed, longestEnded := c.connectedReplicas()
		delays.sessionsEnded(longestEnded)
		current := &delays.first
		if len(connected) > 0 {
			current = &delays.additional
		}
		delay := current.delay
		switch {
		case len(connected) >= c.Sessions:
			delay = never
		case len(connected) > 0 && c.singleReplica():
			delay = replicaCheckInterval/2 + rand.N(replicaCheckInterval/2)
		}
		if sessionEnded := wait(ctx, changed, delay); sessionEnded {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s, err := c.connect(ctx, connected)
		if errors.Is(err, errConnected) {
			current.attemptedConnected()
		} else {
			current.attempted(retryAfter(err))
		}
		if err != nil {
			c.attemptFailed(ctx, err, len(connected), current.delay)
			continue
		}
		c.add(s)
		serving.Go(func() { c.serve(ctx, s) })
	}
}

// wait waits for the delay; it returns true if changed was closed before.
func wait(ctx context.Context, changed <-chan struct{}, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-changed:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// connectedReplicas returns the replicas with a session, a channel that is closed when one of the sessions ends, and the longest duration
// of the sessions that have ended since the last call; 0 if none has.
func (c *Client) connectedReplicas() (replicas []string, changed <-chan struct{}, longestEnded time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		replicas = append(replicas, s.replica)
	}
	longestEnded, c.longestSession = c.longestSession, 0
	return replicas, c.changed, longestEnded
}

// singleReplica reports whether the hub has always had a single replica. One that had several has lost the others for a while: they come
// back, and until then the backoff bounds the attempts.
func (c *Client) singleReplica() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mostReplicas <= 1
}

func (c *Client) add(s *hubSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) == 0 {
		c.lastError, c.since = "", time.Now()
	}
	c.sessions[s] = struct{}{}
	c.Log.Info("Tunnel connected", "hub", s.server, "replica", s.replica, "replicas", c.replicas, "sessions", len(c.sessions))
}

// serve runs a session until it ends.
func (c *Client) serve(ctx context.Context, s *hubSession) {
	err := s.serve(ctx, c)
	duration := time.Since(s.started)
	c.mu.Lock()
	delete(c.sessions, s)
	left := len(c.sessions)
	if left == 0 {
		c.lastError, c.since = closeReason(err), time.Now()
	}
	c.longestSession = max(c.longestSession, duration)
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	c.counters.lost.Add(1)
	c.Log.Warn("Tunnel disconnected", "hub", s.server, "replica", s.replica, "reason", closeReason(err),
		"after", duration.Round(time.Millisecond), "sessions", left)
}
