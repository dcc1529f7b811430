package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"

	"github.com/drover-dev/drover/hub/util/ratelimit"
)

// Limits are how many untrusted connections there may be at a time. Beyond them the hub closes the one that has been idle for longest.
type Limits struct {
	// Address is the limit for one address: a whole fleet may be behind one, and come back at the same moment. Total is for all addresses.
	Address, Total int
}

// Defaults bound the memory that untrusted connections take to some hundred megabytes.
var Defaults = Limits{Address: 4096, Total: 16384}

// Listener accepts connections, each of which is untrusted until Trust is called for it. It belongs directly below TLS.
type Listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex
	addresses map[string]*untrusted
	all       *untrusted
}

// Listen returns a Listener that takes connections from another one.
func Listen(listener net.Listener, limits Limits) *Listener {
	return &Listener{Listener: listener, limits: limits, addresses: map[string]*untrusted{}, all: newUntrusted()}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, listener: l, address: ratelimit.AddressKey(accepted.RemoteAddr().String())}
	if victim := l.add(c); victim != nil {
		_ = victim.Close()
	}
	return c, nil
}

// add adds an untrusted connection, and returns the one that has to be closed for it.
func (l *Listener) add(c *conn) (victim *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	neighbours := l.addresses[c.address]
	if neighbours == nil {
		neighbours = newUntrusted()
		l.addresses[c.address] = neighbours
	}
	switch {
	case neighbours.count() >= l.limits.Address:
		victim = neighbours.first()
	case l.all.count() >= l.limits.Total:
		victim = l.all.first()
	}
	if victim != nil {
		l.drop(victim)
	}
	// The victim may have been the last one of the address.
	l.addresses[c.address] = neighbours
	c.neighbours, c.all = neighbours.place(c, false), l.all.place(c, false)
	return victim
}

// drop removes an untrusted connection. It may have been removed before.
func (l *Listener) drop(c *conn) {
	if c.all == nil {
		return
	}
	neighbours := l.addresses[c.address]
	neighbours.remove(c.neighbours)
	l.all.remove(c.all)
	c.neighbours, c.all = nil, nil
	c.dropped.Store(true)
	if neighbours.count() == 0 {
		delete(l.addresses, c.address)
	}
}

// answering counts the requests of an untrusted connection that have arrived and are being answered: change is 1 or -1. Idle connections
// are closed before those that have some.
func (l *Listener) answering(c *conn, change int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.all == nil {
		return
	}
	before := c.answered > 0
	c.answered += change
	if now := c.answered > 0; now != before {
		neighbours := l.addresses[c.address]
		neighbours.remove(c.neighbours)
		l.all.remove(c.all)
		c.neighbours, c.all = neighbours.place(c, now), l.all.place(c, now)
	}
}

// begin counts a request of a connection, unless that is untrusted and has maxRequests in progress.
func (l *Listener) begin(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.all == nil {
		return true
	}
	if c.requests >= maxRequests {
		return false
	}
	c.requests++
	return true
}

// end is for each request that was counted.
func (l *Listener) end(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.requests--
}

// conn is an accepted connection.
type conn struct {
	net.Conn
	listener *Listener
	address  string
	// neighbours and all are its places among untrusted connections; nil when it is trusted.
	neighbours, all *place
	// answered and requests are how many of its requests have arrived and are being answered, and how many are in progress in all. They count
	// while it is untrusted, and are guarded by the Listener's lock.
	answered, requests int
	// dropped is set when it is no longer an untrusted connection: the requests of trusted ones, which are nearly all, take no lock.
	dropped atomic.Bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// NetConn returns the connection that is limited, as that of package tls does.
func (c *conn) NetConn() net.Conn { return c.Conn }

// ConnContext is for http.Server, so that Trust finds the connection of a request.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// untrusted are connections in the order in which they would be closed: first the idle ones, the oldest at the front.
type untrusted struct{ waiting, answered *list.List }

// place is where a connection is among untrusted ones.
type place struct {
	list    *list.List
	element *list.Element
}

func newUntrusted() *untrusted { return &untrusted{list.New(), list.New()} }

func (u *untrusted) count() int { return u.waiting.Len() + u.answered.Len() }

func (u *untrusted) first() *conn {
	for _, l := range []*list.List{u.waiting, u.answered} {
		if front := l.Front(); front != nil {
			return front.Value.(*conn)
		}
	}
	return nil
}

func (u *untrusted) place(c *conn, answered bool) *place {
	l := u.waiting
	if answered {
		l = u.answered
	}
	return &place{l, l.PushBack(c)}
}

func (u *untrusted) remove(p *place) { p.list.Remove(p.element) }
