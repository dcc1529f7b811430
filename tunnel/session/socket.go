package session

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// started is what moments are counted from, so that they fit into an atomic integer and do not jump with the clock.
var started = time.Now()

func sinceStart() time.Duration { return time.Since(started) }

// Socket is the connection below a websocket. It records when something was last received from the peer.
type Socket struct {
	net.Conn
	// bulk is below TLS; nil without TLS, or if the connection was not made for it.
	bulk *bulk
	// heard is when something was last read, in sinceStart.
	heard    atomic.Int64
	observer Observer
}

// NewSocket returns a socket for a connection, which is best one of Bulk, or TLS above one.
func NewSocket(conn net.Conn, shared *Shared) *Socket {
	s := &Socket{Conn: conn, observer: shared.observer}
	if secured, ok := conn.(*tls.Conn); ok {
		s.bulk = below(secured)
	} else if _, ok := conn.(*bulk); !ok {
		s.Conn = Bulk(conn)
	}
	s.heard.Store(int64(sinceStart()))
	return s
}

// below finds the connection of Bulk below TLS; nil if there is none.
func below(conn net.Conn) *bulk {
	for {
		if b, ok := conn.(*bulk); ok {
			return b
		}
		wrapper, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = wrapper.NetConn()
	}
}

// Read implements net.Conn.
func (s *Socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.heard.Store(int64(sinceStart()))
		s.observer.Received(n)
	}
	return n, err
}

// Write implements net.Conn. What TLS makes of p is written at once.
func (s *Socket) Write(p []byte) (int, error) {
	if s.bulk == nil || len(p) <= bulkWrite {
		return s.Conn.Write(p)
	}
	s.bulk.hold()
	n, err := s.Conn.Write(p)
	if flushErr := s.bulk.flush(); err == nil {
		err = flushErr
	}
	return n, err
}

// Cut ends the connection without another word. To close a TLS connection waits for its last message to be written, for which a peer that
// is gone would have to make room first.
func (s *Socket) Cut() {
	conn := s.Conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
}

// Hijacker passes the connection of a request to the websocket library as a Socket.
type Hijacker struct {
	http.ResponseWriter
	Shared *Shared
	// Socket is set by Hijack.
	Socket *Socket
}

// Hijack implements http.Hijacker.
func (h *Hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.Socket = NewSocket(conn, h.Shared)
	if buffered.Reader.Buffered() > 0 {
		_ = conn.Close()
		return nil, nil, errEarly
	}
	buffered.Reader.Reset(h.Socket)
	return h.Socket, buffered, nil
}

// Unwrap is for http.ResponseController.
func (h *Hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }
