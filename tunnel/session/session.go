package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/wire"
)

// maxControl is how many bytes of control messages may wait. A peer that lets so many pile up does not read.
const maxControl = 1 << 20

// CloseGrace is how long a peer may take to answer that a session ends.
const CloseGrace = 2 * time.Second

// Options of a session. Peer must be set.
type Options struct {
	// Peer names the other end in errors.
	Peer string
	// Dial dials for the peer. Nil refuses its requests to dial.
	Dial Dial
	// Client says that this end has opened the websocket: what it sends is masked.
	Client bool
	// Directional says that the peer keeps a pause for each direction of a stream, as this package does and the library does not.
	Directional bool
	// Probe is how often what is sent may be accompanied by a ping, so that a peer that is gone is known to be soon; 0 is never.
	Probe time.Duration
	// OnViolation is called with the first violation of the protocol by the peer; may be nil.
	OnViolation func(what string)
}

// Session is one websocket with its streams.
type Session struct {
	shared  *Shared
	options Options
	frames  wire.Frames
	socket  *Socket
	ws      *websocket.Conn

	// number counts the messages that were sent; receivers ignore it.
	number atomic.Int64
	// used is the memory of all streams' received bytes.
	used atomic.Int64
	// pinged is when a sign of life was asked for that has not come yet, 0 for none; rtt how long the last one took.
	pinged, rtt atomic.Int64
	// measured is when the last ping was sent.
	measured   atomic.Int64
	violations violations
	// dialed are the goroutines of streams that the peer has opened; dialing ends with the session.
	dialed      sync.WaitGroup
	dialing     context.Context
	stopDialing context.CancelFunc

	mu sync.Mutex
	// streams are those that have not ended, or of which bytes wait to be read.
	streams map[int64]*stream
	// last is the highest id of a stream so far.
	last int64
	// line are the streams that have something to send, in the order of their turns.
	line []*stream
	// controls are frames that go out before any data.
	controls []byte
	// pong says that the peer's last ping is to be answered.
	pong bool
	// writing says that the goroutine of write runs; idle is closed when it has ended after end.
	writing bool
	idle    chan struct{}
	// end is why the session ends, once it does.
	end *End
}

// New returns a session on a websocket whose connection is socket. The websocket must not be used otherwise.
func New(shared *Shared, socket *Socket, ws *websocket.Conn, o Options) *Session {
	s := &Session{
		shared: shared, options: o, frames: wire.Frames{Masked: o.Client}, socket: socket, ws: ws,
		streams: map[int64]*stream{}, idle: make(chan struct{}),
	}
	if o.Dial != nil {
		s.dialing, s.stopDialing = context.WithCancel(context.Background())
	}
	ws.SetReadLimit(shared.limits.Message)
	ws.SetPingHandler(s.handlePing)
	ws.SetPongHandler(s.handlePong)
	// The answer to the peer's close frame is the end of the connection; the library would write one from the goroutine that reads.
	ws.SetCloseHandler(func(int, string) error { return nil })
	return s
}

// Serve reads until the session ends, and returns when nothing of it is left.
func (s *Session) Serve() *End {
	err := s.read()
	s.socket.Cut()
	s.stop(&End{Class: classOf(err), err: fmt.Errorf("reading from the %s: %w", s.other(), err)})

	s.mu.Lock()
	end, writing := s.end, s.writing
	s.mu.Unlock()
	s.endStreams(end)
	if writing {
		<-s.idle
	}
	s.dialed.Wait()
	return end
}

// endStreams ends all streams and their dials and targets.
func (s *Session) endStreams(end *End) {
	if s.stopDialing != nil {
		s.stopDialing()
	}
	for _, st := range s.all() {
		st.end(&EndedError{Peer: s.options.Peer, Reason: end.Error()}, false)
		st.closeTarget()
	}
}

// other is what errors call the other end.
func (s *Session) other() string {
	if s.options.Client {
		return "hub"
	}
	return "agent"
}

// stop marks the session as ended, the first time for good. Nothing new is queued afterwards.
func (s *Session) stop(end *End) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return false
	}
	s.end = end
	return true
}

// Fail ends the session at once.
func (s *Session) Fail(end *End) {
	s.stop(end)
	s.socket.Cut()
}

// Close ends the session so that the peer learns why, and does not leak what it has paused. The code is one of the websocket library.
func (s *Session) Close(end *End, code int) {
	for _, st := range s.all() {
		st.end(&EndedError{Peer: s.options.Peer, Reason: end.Error()}, true)
	}
	// A reason in a control frame has 123 bytes at most.
	reason := end.Error()
	reason = reason[:min(len(reason), 123)]
	s.queue(s.frames.Append(nil, websocket.CloseMessage, websocket.FormatCloseMessage(code, reason)))
	if s.stop(end) {
		time.AfterFunc(CloseGrace, s.socket.Cut)
	}
}

// Open starts a stream. The peer dials while the first bytes are on their way; that it could not shows when the stream is read.
func (s *Session) Open(ctx context.Context, network, address string) (net.Conn, error) {
	st, err := s.open(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return st, nil
}

func (s *Session) open(ctx context.Context, network, address string) (*stream, error) {
	target, err := wire.Target(network, address)
	if err != nil {
		return nil, fmt.Errorf("dialing through the tunnel to %s: %w", s.options.Peer, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.end != nil {
		s.mu.Unlock()
		return nil, &EndedError{Peer: s.options.Peer, Reason: s.end.Error()}
	}
	if len(s.streams) >= s.shared.limits.Streams {
		s.mu.Unlock()
		return nil, &LimitError{What: fmt.Sprintf("the tunnel to %s has %d connections already", s.options.Peer, s.shared.limits.Streams)}
	}
	st := newStream(s, s.last+1, network, address)
	s.keep(st)
	s.mu.Unlock()
	s.shared.observer.Streams(1)
	s.control(st.id, wire.Connect, target)
	s.probe()
	return st, nil
}

// keep adds a stream. The lock is held.
func (s *Session) keep(st *stream) {
	s.streams[st.id] = st
	s.last = max(s.last, st.id)
	if len(s.streams) == 1 {
		s.shared.add(s)
	}
}

// forget removes a stream that has ended.
func (s *Session) forget(st *stream) {
	s.mu.Lock()
	found := s.streams[st.id] == st
	if found {
		delete(s.streams, st.id)
	}
	if found && len(s.streams) == 0 {
		s.shared.remove(s)
	}
	s.mu.Unlock()
	if found {
		s.shared.observer.Streams(-1)
	}
}

func (s *Session) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.streams))
}

func (s *Session) stream(id int64) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[id]
}

// HasEnded reports whether the session takes no more streams.
func (s *Session) HasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end != nil
}

// Violations is the number of violations of the protocol by the peer.
func (s *Session) Violations() int {
	s.violations.mu.Lock()
	defer s.violations.mu.Unlock()
	return s.violations.count
}

var errEarly = errors.New("the agent sent something before the websocket was open")
