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

// Limits are how many untrusted connections there may be at a time. Beyond them the hub closes the one that it has waited for longest. As
// many requests may be in progress on them beyond the first one of each connection.
type Limits struct {
	// Address is the limit for one address: a whole fleet may be behind one, and come back at the same moment. Total is for all addresses.
	Address, Total int
}

// Defaults bound the memory that untrusted connections take to some 2.5 GiB, and those of one address to some 640 MiB. A connection of
// HTTP/2 takes some 64 KiB with its goroutines, a record of TLS and a frame: 1 GiB for 16,384. Each may have a request, and all together
// 16,384 more, with headers of up to 48 KiB that were sent for it: 1.5 GiB. Clients that are not hostile send a kilobyte. The part of a
// body that nobody has read takes up to 128 KiB of a connection, for half a minute. What net/http itself refuses, with 400 or 431, is not
// counted.
var Defaults = Limits{Address: 4096, Total: 16384}

// Listener accepts connections, each of which is untrusted until Trust is called for it. It belongs directly below TLS.
type Listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex
	addresses map[string]*untrusted
	all       *untrusted
	// trusted has the trusted connections of each key, the oldest first; keys that have none are not in it.
	trusted map[string]*list.List
}

// Listen returns a Listener that takes connections from another one.
func Listen(listener net.Listener, limits Limits) *Listener {
	return &Listener{
		Listener: listener, limits: limits, addresses: map[string]*untrusted{}, all: newUntrusted(), trusted: map[string]*list.List{},
	}
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
	l.count(c, -c.requests)
	neighbours := l.addresses[c.address]
	neighbours.remove(c.neighbours)
	l.all.remove(c.all)
	c.neighbours, c.all = nil, nil
	c.dropped.Store(true)
	if neighbours.count() == 0 {
		delete(l.addresses, c.address)
	}
}

// trust makes a connection a trusted one of key, unless it is no untrusted one any more. It returns the oldest one of the key if there are
// more than limit, which has to be closed. Connections of the key "" are not counted.
func (l *Listener) trust(c *conn, key string, limit int) (oldest *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.all == nil {
		return nil
	}
	l.drop(c)
	if key == "" {
		return nil
	}
	conns := l.trusted[key]
	if conns == nil {
		conns = list.New()
		l.trusted[key] = conns
	}
	c.key, c.trusted = key, conns.PushBack(c)
	if conns.Len() <= limit {
		return nil
	}
	oldest = conns.Front().Value.(*conn)
	l.forget(oldest)
	return oldest
}

// forget removes a connection from the trusted ones of its key. It may not be among them.
func (l *Listener) forget(c *conn) {
	if c.trusted == nil {
		return
	}
	conns := l.trusted[c.key]
	conns.Remove(c.trusted)
	c.trusted = nil
	if conns.Len() == 0 {
		delete(l.trusted, c.key)
	}
}

// answering counts the requests of an untrusted connection that are being answered: change is 1 or -1. All other connections are closed
// before those that have some.
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

// decision says what becomes of a request.
type decision int

const (
	allow decision = iota
	// refuse is for requests that are answered 429, hangUp for those with which the connection is closed.
	refuse
	hangUp
)

// begin decides about a request of a connection, and counts it as in progress unless the connection is closed: a refusal takes memory, too,
// until it is sent. Requests of trusted connections are allowed and not counted.
func (l *Listener) begin(c *conn) decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.all == nil {
		return allow
	}
	full := l.addresses[c.address].extra >= l.limits.Address || l.all.extra >= l.limits.Total
	decided := refuse
	switch {
	case c.requests == 0:
		decided = allow
	case full && c.requests >= maxRefused:
		return hangUp
	case !full && c.requests < maxRequests:
		decided = allow
	}
	l.count(c, 1)
	return decided
}

// end is for each request that was counted, also if the connection was trusted in the meantime.
func (l *Listener) end(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.all != nil {
		l.count(c, -1)
	}
}

// count adds to the requests in progress of an untrusted connection.
func (l *Listener) count(c *conn, change int) {
	before := c.extra()
	c.requests += change
	l.addresses[c.address].extra += c.extra() - before
	l.all.extra += c.extra() - before
}

// conn is an accepted connection.
type conn struct {
	net.Conn
	listener *Listener
	address  string
	// neighbours and all are its places among untrusted connections; nil when it is none any more. They and all fields up to dropped are
	// guarded by the Listener's lock.
	neighbours, all *place
	// answered is how many of its requests are being answered, and requests how many are in progress in all, while it is untrusted.
	answered, requests int
	// trusted is its place among the trusted connections of key; nil when it is not counted there.
	trusted *list.Element
	key     string
	// dropped is set when it is no longer an untrusted connection: the requests of trusted ones, which are nearly all, take no lock.
	dropped atomic.Bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.forget(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// extra is how many of its requests count for all connections of the address, and for all.
func (c *conn) extra() int { return max(0, c.requests-1) }

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

// untrusted are connections in the order in which they would be closed: first those that the hub waits for, the oldest at the front.
type untrusted struct {
	waiting, answered *list.List
	// extra is how many requests are in progress beyond the first one of each connection.
	extra int
}

// place is where a connection is among untrusted ones.
type place struct {
	list    *list.List
	element *list.Element
}

func newUntrusted() *untrusted { return &untrusted{waiting: list.New(), answered: list.New()} }

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
