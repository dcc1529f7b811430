package tunnel

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// started is what moments are counted from, so that they fit into an atomic integer and do not jump with the clock.
var started = time.Now()

func sinceStart() time.Duration { return time.Since(started) }

// socket is the connection below a websocket. It knows when something was last heard from the agent.
type socket struct {
	net.Conn
	// heard is when something was last read, as sinceStart tells it.
	heard atomic.Int64
	// received counts what was read.
	received prometheus.Counter
}

func newSocket(conn net.Conn, received prometheus.Counter) *socket {
	// With TLS, what matters is how much is read at once below it.
	if _, secured := conn.(*tls.Conn); !secured {
		conn = &readAhead{Conn: conn}
	}
	s := &socket{Conn: conn, received: received}
	s.heard.Store(int64(sinceStart()))
	return s
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.heard.Store(int64(sinceStart()))
		s.received.Add(float64(n))
	}
	return n, err
}

// cut ends the connection without another word. To close a TLS connection waits for its last message to be written, for which a peer that
// has gone away would have to make room first.
func (s *socket) cut() {
	conn := s.Conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
}

// hijacker hands the connection of a request to the websocket library as a socket.
type hijacker struct {
	http.ResponseWriter
	received prometheus.Counter
	socket   *socket
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.socket = newSocket(conn, h.received)
	if buffered.Reader.Buffered() > 0 {
		_ = conn.Close()
		return nil, nil, errEarly
	}
	buffered.Reader.Reset(h.socket)
	return h.socket, buffered, nil
}

// Unwrap is for http.ResponseController.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }
