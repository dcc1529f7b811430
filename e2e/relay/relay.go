// Package relay is a line between two networks that can be made bad: far away, lossy, cut, or dead without telling anybody. The
// kernels of test machines have no netem, so bytes are held back here. It knows nothing of what it carries.
package relay

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Quality says how the line is. The zero value carries everything at once.
type Quality struct {
	// RoundTrip is how long a byte and the answer to it take together, beyond the networks themselves.
	RoundTrip time.Duration
	// Loss is the share of packets that get lost, 0 to 1. TCP repairs it: what a reader sees is that everything behind waits.
	Loss float64
}

// Relay carries the connections that its listener takes to where dial leads.
type Relay struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	ctx      context.Context // ends with Close
	close    context.CancelFunc
	done     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	quality Quality
	cut     bool
	lines   map[*line]struct{}
	random  *rand.Rand
}

// New starts a relay, which runs until Close. seed decides which packets are lost.
func New(listener net.Listener, dial func(context.Context) (net.Conn, error), seed uint64) *Relay {
	r := &Relay{listener: listener, dial: dial, lines: map[*line]struct{}{}, random: rand.New(rand.NewPCG(seed, 0))}
	r.ctx, r.close = context.WithCancel(context.Background())
	r.done.Go(r.accept)
	return r
}

func (r *Relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		if r.isCut() {
			reset(conn)
			continue
		}
		r.done.Go(func() { r.forward(conn) })
	}
}

// forward connects one connection through and returns when it has ended.
func (r *Relay) forward(near net.Conn) {
	far, err := r.dial(r.ctx)
	if err != nil {
		reset(near) // as whoever does not listen there would
		return
	}
	l := newLine(r.ctx, near, far, r.delay)
	if !r.add(l) {
		l.end()
	}
	l.run()
	r.mu.Lock()
	delete(r.lines, l)
	r.mu.Unlock()
}

func (r *Relay) add(l *line) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut || r.ctx.Err() != nil {
		return false
	}
	r.lines[l] = struct{}{}
	return true
}

// SetQuality changes the line for everything that is sent from now on.
func (r *Relay) SetQuality(q Quality) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quality = q
}

// Freeze makes every present connection half-open: it carries nothing any more, and neither end is told. New ones are carried. It returns
// how many it has frozen.
func (r *Relay) Freeze() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for l := range r.lines {
		if l.freeze() {
			n++
		}
	}
	return n
}

// Cut resets every connection, and refuses new ones until Restore.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for l := range r.lines {
		l.end()
	}
}

// Restore accepts connections again after Cut.
func (r *Relay) Restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
}

// Close ends the relay with all its connections, also the frozen ones.
func (r *Relay) Close() {
	r.close()
	_ = r.listener.Close()
	r.done.Wait()
}

func (r *Relay) isCut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}

// delay is how long the next chunk of bytes is under way.
func (r *Relay) delay(bytes int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quality.delay(bytes, r.random.Float64())
}
