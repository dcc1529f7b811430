package tunnel

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bulkBuffer is the size of the buffer that a session reads into while it moves much.
const bulkBuffer = 64 << 10

var bulkBuffers = sync.Pool{New: func() any { return new([bulkBuffer]byte) }}

// started is what moments are counted from, so that they fit into an atomic integer and do not jump with the clock.
var started = time.Now()

func sinceStart() time.Duration { return time.Since(started) }

// socket is the connection below a websocket. It knows when something was last heard from the agent, and reads into a large buffer, but
// only while that is filled: an idle session has none.
type socket struct {
	net.Conn
	// heard is when something was last read, as sinceStart tells it.
	heard atomic.Int64
	// received counts what was read.
	received prometheus.Counter

	// What was read ahead; only the reader uses it.
	bulk *[bulkBuffer]byte
	r, w int
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	if s.r < s.w {
		n := copy(p, s.bulk[s.r:s.w])
		if s.r += n; s.r == s.w && s.w < len(p) {
			s.release()
		}
		return n, nil
	}
	if s.bulk == nil {
		n, err := s.Conn.Read(p)
		s.listen(n)
		if n == len(p) {
			s.bulk = bulkBuffers.Get().(*[bulkBuffer]byte)
		}
		return n, err
	}
	n, err := s.Conn.Read(s.bulk[:])
	s.listen(n)
	s.r, s.w = copy(p, s.bulk[:n]), n
	if s.r == s.w {
		n = s.r
		s.release()
		return n, err
	}
	return s.r, err
}

func (s *socket) listen(n int) {
	if n > 0 {
		s.heard.Store(int64(sinceStart()))
		s.received.Add(float64(n))
	}
}

func (s *socket) release() {
	if s.bulk != nil {
		bulkBuffers.Put(s.bulk)
		s.bulk = nil
	}
	s.r, s.w = 0, 0
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
	h.socket = &socket{Conn: conn, received: h.received}
	h.socket.heard.Store(int64(sinceStart()))
	if buffered.Reader.Buffered() > 0 {
		_ = conn.Close()
		return nil, nil, errEarly
	}
	buffered.Reader.Reset(h.socket)
	return h.socket, buffered, nil
}

// Unwrap is for http.ResponseController.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }
