package session

import (
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/wire"
)

// batchSize is how much is put together before it is written; one more message of a stream may follow.
const batchSize = 64 << 10

// keptControl is how large the memory of control messages may be that is kept for the next ones.
const keptControl = 4 << 10

var batches = sync.Pool{New: func() any {
	batch := make([]byte, 0, batchSize+clientQuantum+wire.MaxHeader+wire.MaxFrameHeader)
	return &batch
}}

// control queues a message that goes out before any data.
func (s *Session) control(stream int64, kind wire.Type, body string) {
	s.queue(wire.AppendMessage(s.frames, nil, s.number.Add(1), wire.Header{Stream: stream, Type: kind}, body))
}

// queue queues a frame that goes out before any data.
func (s *Session) queue(frame []byte) {
	s.mu.Lock()
	if s.end != nil {
		s.mu.Unlock()
		return
	}
	s.controls = append(s.controls, frame...)
	waiting := len(s.controls)
	s.wake()
	s.mu.Unlock()
	if waiting > maxControl {
		s.Fail(Ended(Write, "the %s does not read: %d KiB of control messages wait for it", s.other(), waiting>>10))
	}
}

// enqueue puts a stream at the end of the line.
func (s *Session) enqueue(st *stream) {
	s.probe()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(s.line, st)
	s.wake()
}

// wake starts the goroutine that writes where there is none, unless the session has ended. The lock is held.
func (s *Session) wake() {
	if !s.writing && s.end == nil {
		s.writing = true
		go s.write()
	}
}

// write sends until nothing is left to send.
func (s *Session) write() {
	buffer := batches.Get().(*[]byte)
	defer batches.Put(buffer)
	for {
		batch := s.batch((*buffer)[:0])
		if len(batch) == 0 {
			if s.rest() {
				return
			}
			continue
		}
		_ = s.socket.SetWriteDeadline(time.Now().Add(s.shared.limits.Write))
		n, err := s.socket.Write(batch)
		s.shared.observer.Sent(n)
		if err != nil {
			s.Fail(Ended(Write, "writing to the %s: %w", s.other(), err))
		}
		if cap(batch) <= 2*cap(*buffer) {
			*buffer = batch
		}
	}
}

// batch puts together what is written at once: control messages, and streams in turn.
func (s *Session) batch(batch []byte) []byte {
	for {
		var st *stream
		if batch, st = s.next(batch); st == nil {
			return batch
		}
		batch = st.take(batch)
	}
}

// next appends the control messages to batch, and takes the stream out of the line whose turn it is, while there is room. Control messages
// are looked for before every stream, because the one that opens that stream may have just come.
func (s *Session) next(batch []byte) ([]byte, *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pong {
		batch = s.frames.Append(batch, websocket.PongMessage, nil)
		s.pong = false
	}
	batch = append(batch, s.controls...)
	s.controls = s.controls[:0]
	if cap(s.controls) > keptControl {
		s.controls = nil
	}
	if len(s.line) == 0 || len(batch) >= batchSize {
		return batch, nil
	}
	st := s.line[0]
	s.line[0] = nil
	if s.line = s.line[1:]; len(s.line) == 0 {
		s.line = nil
	}
	return batch, st
}

// rest reports whether there is nothing to write; the caller then ends.
func (s *Session) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.controls) > 0 || len(s.line) > 0 || s.pong {
		return false
	}
	s.writing = false
	if s.end != nil {
		close(s.idle)
	}
	return true
}
