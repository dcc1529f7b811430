package session

import (
	"encoding/binary"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/wire"
)

// Silence is how long nothing was received from the peer.
func (s *Session) Silence() time.Duration {
	return sinceStart() - time.Duration(s.socket.heard.Load())
}

// SincePing is how long ago the last ping was sent.
func (s *Session) SincePing() time.Duration {
	return sinceStart() - time.Duration(s.measured.Load())
}

// Unanswered is for how long the peer has been silent although it was pinged; 0 if it was not, or has sent something since.
func (s *Session) Unanswered() time.Duration {
	asked := s.pinged.Load()
	if asked == 0 || s.socket.heard.Load() > asked {
		return 0
	}
	return sinceStart() - time.Duration(asked)
}

// RoundTrip is how long the peer took to answer the last ping; 0 if there was none.
func (s *Session) RoundTrip() time.Duration { return time.Duration(s.rtt.Load()) }

// Ping asks the peer for a sign of life. Agents of the library answer every ping with an empty pong, so that there is one at a time.
func (s *Session) Ping() {
	now := int64(sinceStart())
	s.measured.Store(now)
	s.pinged.CompareAndSwap(0, now)
	s.queue(s.frames.Append(nil, websocket.PingMessage, nil))
}

// probe pings the peer when something is sent to it, unless that was done a short time ago.
func (s *Session) probe() {
	if s.options.Probe > 0 && s.SincePing() >= s.options.Probe && s.Unanswered() == 0 {
		s.Ping()
	}
}

func (s *Session) handlePing(string) error {
	s.mu.Lock()
	s.pong = true
	s.wake()
	s.mu.Unlock()
	return nil
}

func (s *Session) handlePong(string) error {
	if asked := s.pinged.Swap(0); asked != 0 {
		took := sinceStart() - time.Duration(asked)
		s.rtt.Store(int64(took))
		s.shared.observer.RoundTrip(took)
	}
	return nil
}

// Sync sends the list of all streams, so that the peer ends those that this end does not have.
func (s *Session) Sync() {
	s.mu.Lock()
	list := make([]byte, 0, 8*len(s.streams))
	for id := range s.streams {
		list = binary.LittleEndian.AppendUint64(list, uint64(id))
	}
	s.mu.Unlock()
	s.control(0, wire.SyncConnections, string(list))
}
