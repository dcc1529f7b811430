package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/hub/access/tunnel/wire"
)

// maxControl is how many bytes of control messages may wait. An agent that lets so many pile up does not read.
const maxControl = 1 << 20

// closeGrace is how long an agent may take to answer that a session ends.
const closeGrace = 2 * time.Second

// session is one websocket of one agent.
type session struct {
	manager *Manager
	agent   Agent
	log     logr.Logger
	socket  *socket
	ws      *websocket.Conn
	opened  time.Time
	// gone is closed when the session is not in the Manager's table any more.
	gone chan struct{}

	// number counts the messages that were sent; receivers ignore it.
	number atomic.Int64
	// used is the memory of all streams' received bytes.
	used atomic.Int64
	// pinged is when a sign of life was asked for that has not come yet, 0 for none; rtt how long the last one took.
	pinged, rtt atomic.Int64
	// measured is when the last ping was sent.
	measured   atomic.Int64
	violations violations

	mu      sync.Mutex
	streams map[int64]*stream
	// last is the id of the newest stream.
	last int64
	// line are the streams that have something to send, in the order of their turns.
	line []*stream
	// controls are frames that go out before any data.
	controls []byte
	// pong says that the agent's last ping is to be answered.
	pong bool
	// writing says that the goroutine of write runs; idle is closed when it has ended after end.
	writing bool
	idle    chan struct{}
	// end is why the session ends, once it does.
	end *sessionEnd
}

func newSession(m *Manager, agent Agent, socket *socket, ws *websocket.Conn) *session {
	s := &session{
		manager: m, agent: agent, socket: socket, ws: ws, opened: time.Now(),
		log:     m.log.WithValues("key", agent.Key, "identity", agent.Identity),
		streams: map[int64]*stream{}, idle: make(chan struct{}), gone: make(chan struct{}),
	}
	ws.SetReadLimit(m.limits.Message)
	ws.SetPingHandler(s.handlePing)
	ws.SetPongHandler(s.handlePong)
	// The answer to the agent's close frame is the end of the connection; the library would write one from the goroutine that reads.
	ws.SetCloseHandler(func(int, string) error { return nil })
	return s
}

// serve reads until the session ends, and returns when nothing of it is left.
func (s *session) serve() *sessionEnd {
	err := s.read()
	s.socket.cut()
	s.stop(&sessionEnd{class: classOf(err), err: fmt.Errorf("reading from the agent: %w", err)})

	s.mu.Lock()
	end, writing := s.end, s.writing
	s.mu.Unlock()
	for _, st := range s.all() {
		st.end(&SessionEndedError{Key: s.agent.Key, Reason: end.Error()}, false)
	}
	if writing {
		<-s.idle
	}
	return end
}

// stop marks the session as ended, the first time for good. Nothing new is queued afterwards.
func (s *session) stop(end *sessionEnd) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return false
	}
	s.end = end
	return true
}

// fail ends the session at once.
func (s *session) fail(end *sessionEnd) {
	s.stop(end)
	s.socket.cut()
}

// close ends the session so that the agent learns why, and does not leak what it has paused.
func (s *session) close(end *sessionEnd, code int) {
	for _, st := range s.all() {
		st.end(&SessionEndedError{Key: s.agent.Key, Reason: end.Error()}, true)
	}
	// A reason in a control frame has 123 bytes at most.
	reason := end.Error()
	reason = reason[:min(len(reason), 123)]
	s.queue(frame(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason)))
	if s.stop(end) {
		time.AfterFunc(closeGrace, s.socket.cut)
	}
}

func frame(kind int, payload []byte) []byte {
	return append(wire.AppendFrame(make([]byte, 0, wire.MaxFrameHeader+len(payload)), kind, len(payload)), payload...)
}

// open starts a stream. The agent dials while the first bytes are on their way; that it could not shows when the stream is read.
func (s *session) open(ctx context.Context, network, address string) (*stream, error) {
	target, err := wire.Target(network, address)
	if err != nil {
		return nil, fmt.Errorf("dialing through the tunnel to %s: %w", s.agent.Key, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.end != nil {
		s.mu.Unlock()
		return nil, &SessionEndedError{Key: s.agent.Key, Reason: s.end.Error()}
	}
	if len(s.streams) >= s.manager.limits.Streams {
		s.mu.Unlock()
		return nil, &LimitError{What: fmt.Sprintf("the tunnel to %s has %d connections already", s.agent.Key, s.manager.limits.Streams)}
	}
	s.last++
	st := newStream(s, s.last, network, address)
	s.streams[st.id] = st
	s.mu.Unlock()
	s.manager.metrics.streams.Inc()
	s.control(st.id, wire.Connect, target)
	return st, nil
}

// forget removes a stream that has ended.
func (s *session) forget(st *stream) {
	s.mu.Lock()
	_, found := s.streams[st.id]
	delete(s.streams, st.id)
	s.mu.Unlock()
	if found {
		s.manager.metrics.streams.Dec()
	}
}

func (s *session) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.streams))
}

func (s *session) stream(id int64) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[id]
}

// silence is how long nothing was heard from the agent.
func (s *session) silence() time.Duration {
	return sinceStart() - time.Duration(s.socket.heard.Load())
}

func (s *session) roundTrip() time.Duration { return time.Duration(s.rtt.Load()) }

// ping asks for a sign of life. The library's agents answer every ping with an empty pong, so that there is one at a time.
func (s *session) ping() {
	s.pinged.CompareAndSwap(0, int64(sinceStart()))
	s.queue(frame(websocket.PingMessage, nil))
}

func (s *session) handlePing(string) error {
	s.mu.Lock()
	s.pong = true
	s.wake()
	s.mu.Unlock()
	return nil
}

func (s *session) handlePong(string) error {
	if asked := s.pinged.Swap(0); asked != 0 {
		took := sinceStart() - time.Duration(asked)
		s.rtt.Store(int64(took))
		s.manager.metrics.roundTrip.Observe(took.Seconds())
	}
	return nil
}

var errEarly = errors.New("the agent sent something before the websocket was open")
