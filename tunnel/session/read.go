package session

import (
	"errors"
	"io"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/wire"
)

const (
	// maxErrorText is how much of an agent's account of an error is read.
	maxErrorText = 256
)

// read handles the agent's messages until the session ends.
func (s *Session) read() error {
	var head [64]byte
	for {
		kind, body, err := s.ws.NextReader()
		if err != nil {
			return readError(err)
		}
		if kind != websocket.BinaryMessage {
			return Ended(Protocol, "a message that is not binary")
		}
		n, header, err := readHeader(body, head[:])
		if err != nil {
			return readError(err)
		}
		if err := s.handle(header, head[n.parsed:n.read], body); err != nil {
			return readError(err)
		}
	}
}

// headLength is how much of a message was read to have its header, and how much of that is the header.
type headLength struct{ read, parsed int }

func readHeader(body io.Reader, head []byte) (headLength, wire.Header, error) {
	var n headLength
	for {
		more, err := body.Read(head[n.read:])
		n.read += more
		header, parsed, parseErr := wire.ParseHeader(head[:n.read])
		switch {
		case parseErr == nil:
			n.parsed = parsed
			return n, header, nil
		case !errors.Is(parseErr, wire.ErrShort), errors.Is(err, io.EOF):
			return n, header, Ended(Protocol, "%w", parseErr)
		case err != nil:
			return n, header, err
		}
	}
}

func readError(err error) error {
	var end *End
	switch {
	case errors.As(err, &end):
		return err
	case errors.Is(err, websocket.ErrReadLimit):
		return Ended(Protocol, "a message is longer than what is read of one")
	}
	return err
}

// handle does what a message asks for. It must not wait for anything but the rest of the message, with the one exception that admit
// explains.
func (s *Session) handle(header wire.Header, head []byte, body io.Reader) error {
	st := s.stream(header.Stream)
	switch header.Type {
	case wire.Data:
		if st == nil {
			s.unknown(header.Stream)
			return nil
		}
		return st.receive(head, body)
	case wire.Error:
		text, err := readText(head, body, maxErrorText)
		if err == nil && st != nil {
			st.end(remoteEnd(text), false)
		}
		return err
	case wire.Pause:
		if st != nil {
			st.peerPaused()
		}
	case wire.Resume:
		if st != nil {
			st.peerResumed()
		}
	case wire.SyncConnections:
		return s.handleSync(head, body)
	case wire.Connect:
		target, err := readText(head, body, wire.MaxTarget+1)
		if err != nil {
			return err
		}
		s.connect(header.Stream, target)
	case wire.AddClient, wire.RemoveClient:
		s.violation("it speaks for other agents, as hubs do to each other")
	default:
		s.violation("it sends messages of an unknown type")
	}
	return nil
}

// readText reads the body of a message, but no more than so many bytes.
func readText(head []byte, body io.Reader, limit int) (string, error) {
	text := append(make([]byte, 0, limit), head[:min(len(head), limit)]...)
	rest, err := io.ReadAll(io.LimitReader(body, int64(limit-len(text))))
	return string(append(text, rest...)), err
}

func remoteEnd(text string) error {
	if text == wire.EOF {
		return io.EOF
	}
	return &RemoteError{Text: text}
}

// unknown handles Data of a stream that is not there. Where the hub has had the stream, what arrives was on its way when it ended, and
// the agent was told or has told so itself.
func (s *Session) unknown(id int64) {
	s.mu.Lock()
	had := id > 0 && id <= s.last
	s.mu.Unlock()
	if !had {
		s.violation("it sends data of streams that were not opened")
		s.refuse(id, "there is no such stream")
	}
}

// refuse ends a stream that the hub does not have, unless so many are refused that answers would only be more work.
func (s *Session) refuse(id int64, why string) {
	if s.violations.answer() {
		s.control(id, wire.Error, why)
	}
}

// handleSync ends the streams that the agent does not have any more.
func (s *Session) handleSync(head []byte, body io.Reader) error {
	rest, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	ids, err := wire.ParseStreams(append(append([]byte{}, head...), rest...))
	if err != nil {
		return Ended(Protocol, "%w", err)
	}
	known := make(map[int64]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	var gone []*stream
	s.mu.Lock()
	for id, st := range s.streams {
		if !known[id] && time.Since(st.opened) > s.shared.limits.SyncAge {
			gone = append(gone, st)
		}
	}
	s.mu.Unlock()
	for _, st := range gone {
		st.end(&RemoteError{Text: "it does not know this connection any more"}, false)
	}
	return nil
}
