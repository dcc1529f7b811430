package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/drover-dev/drover/hub/ratelimit"
)

// Limits are how many connections of strangers there may be at a time. Beyond them the hub closes the one that has been waited for longest.
type Limits struct {
	// Address is the limit for one address: a whole fleet may be behind one, and come back at the same moment. Total is for all addresses.
	Address, Total int
}

// Defaults bound the memory that strangers take to some hundred megabytes.
var Defaults = Limits{Address: 4096, Total: 16384}

// Listener accepts connections, each of which is a stranger's until it is trusted. It belongs directly below TLS.
type Listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex
	addresses map[string]*strangers
	all       *strangers
}

// Listen returns a Listener that takes connections from another one.
func Listen(listener net.Listener, limits Limits) *Listener {
	return &Listener{Listener: listener, limits: limits, addresses: map[string]*strangers{}, all: newStrangers()}
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

// add counts a stranger in, and returns the one that has to go for it.
func (l *Listener) add(c *conn) (victim *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	neighbours := l.addresses[c.address]
	if neighbours == nil {
		neighbours = newStrangers()
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

// drop counts a stranger out. It may have been counted out before.
func (l *Listener) drop(c *conn) {
	if c.all == nil {
		return
	}
	neighbours := l.addresses[c.address]
	neighbours.remove(c.neighbours)
	l.all.remove(c.all)
	c.neighbours, c.all = nil, nil
	if neighbours.count() == 0 {
		delete(l.addresses, c.address)
	}
}

// answering notes whether a stranger's request has arrived and is being answered. Those that are waited for are closed before it.
func (l *Listener) answering(c *conn, answering bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.all == nil {
		return
	}
	neighbours := l.addresses[c.address]
	neighbours.remove(c.neighbours)
	l.all.remove(c.all)
	c.neighbours, c.all = neighbours.place(c, answering), l.all.place(c, answering)
}

// Strangers is how many connections have not been trusted.
func (l *Listener) Strangers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.count()
}

// conn is an accepted connection.
type conn struct {
	net.Conn
	listener *Listener
	address  string
	// neighbours and all are its places among strangers; nil when it is none any more.
	neighbours, all *place
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.drop(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

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

// strangers are connections in the order in which they would be closed: first those that are waited for, the oldest at the front.
type strangers struct{ waiting, answered *list.List }

// place is where a connection is among strangers.
type place struct {
	list    *list.List
	element *list.Element
}

func newStrangers() *strangers { return &strangers{list.New(), list.New()} }

func (s *strangers) count() int { return s.waiting.Len() + s.answered.Len() }

func (s *strangers) first() *conn {
	for _, l := range []*list.List{s.waiting, s.answered} {
		if front := l.Front(); front != nil {
			return front.Value.(*conn)
		}
	}
	return nil
}

func (s *strangers) place(c *conn, answered bool) *place {
	l := s.waiting
	if answered {
		l = s.answered
	}
	return &place{l, l.PushBack(c)}
}

func (s *strangers) remove(p *place) { p.list.Remove(p.element) }
