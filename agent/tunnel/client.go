package tunnel

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	forever = time.Duration(math.MaxInt64)
	// lookForMore is how often a hub that has said it is alone is asked again. Nothing tells when it gets company.
	lookForMore = 10 * time.Minute
)

// Client keeps sessions to a hub.
type Client struct {
	Options
	counters counters

	mu       sync.Mutex
	sessions map[*session]struct{}
	// replicas is how many the hub has said there are; 0 as long as it has not.
	replicas int
	// lasted is the longest time of the sessions that have ended since Run looked.
	lasted time.Duration
	// problem is why there is no session, since when there is none or, if there are some, when the first of them came.
	problem string
	since   time.Time
	// changed is closed, and made anew, whenever a session ends.
	changed chan struct{}
}

// New makes a Client; Run starts it.
func New(o Options) *Client {
	o.Sessions = max(o.Sessions, 1)
	redirectLibrary(o.Log)
	return &Client{Options: o, sessions: map[*session]struct{}{}, changed: make(chan struct{}), since: time.Now(), problem: "not tried yet"}
}

// Run keeps the sessions up until ctx is done. Then it closes them, and returns when nothing of them is left.
func (c *Client) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	// What is tried while there is no session has its own pace, so that a second one that does not come keeps nothing waiting.
	var first, more backoff
	for {
		held, changed := c.held()
		pace := &first
		if len(held) > 0 {
			pace = &more
		}
		delay := pace.wait
		switch {
		case len(held) >= c.Sessions:
			delay = forever
		case len(held) > 0 && c.alone():
			delay = lookForMore/2 + rand.N(lookForMore/2)
		}
		if ended := pause(ctx, changed, delay); ended {
			more.reset()
			first.ended(c.takeLasted())
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s, err := c.open(ctx, held)
		pace.tried(retryAfter(err))
		if err != nil {
			c.failed(ctx, err, len(held), pace.wait)
			continue
		}
		c.add(s)
		serving.Go(func() { c.serve(ctx, s) })
	}
}

// pause waits; it returns true when a session has ended meanwhile.
func pause(ctx context.Context, changed <-chan struct{}, delay time.Duration) bool {
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

// held gives the replicas that there are sessions to, and what is closed when one of those ends.
func (c *Client) held() ([]string, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var replicas []string
	for s := range c.sessions {
		replicas = append(replicas, s.replica)
	}
	return replicas, c.changed
}

func (c *Client) alone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replicas <= 1
}

func (c *Client) takeLasted() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	lasted := c.lasted
	c.lasted = 0
	return lasted
}

func (c *Client) add(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) == 0 {
		c.problem, c.since = "", time.Now()
	}
	c.sessions[s] = struct{}{}
	c.Log.Info("Tunnel is up", "hub", s.server, "replica", s.replica, "replicas", c.replicas, "sessions", len(c.sessions))
}

// serve runs a session to its end.
func (c *Client) serve(ctx context.Context, s *session) {
	err := s.serve(ctx, c.local)
	lasted := time.Since(s.start)
	c.mu.Lock()
	delete(c.sessions, s)
	left := len(c.sessions)
	if left == 0 {
		c.problem, c.since = describe(err), time.Now()
	}
	c.lasted = max(c.lasted, lasted)
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	c.counters.lost.Add(1)
	c.Log.Warn("Tunnel was lost", "hub", s.server, "replica", s.replica, "reason", describe(err), "after", lasted.Round(time.Millisecond), "sessions", left)
}
