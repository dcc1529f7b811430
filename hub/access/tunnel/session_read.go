package tunnel

import (
	"errors"
	"io"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/hub/access/tunnel/wire"
)

const (
	// maxErrorText is how much of an agent's account of an error is read.
	maxErrorText = 256
	// syncAge is how old a stream must be before an agent's list of streams ends it: the list may have been on its way when the stream was
	// opened.
	syncAge = 30 * time.Second
)

// read handles the agent's messages until the session ends.
func (s *session) read() error {
	var head [64]byte
	for {
		kind, body, err := s.ws.NextReader()
		if err != nil {
			return readError(err)
		}
		if kind != websocket.BinaryMessage {
			return ended(endProtocol, "a message that is not binary")
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
			return n, header, ended(endProtocol, "%w", parseErr)
		case err != nil:
			return n, header, err
		}
	}
}

func readError(err error) error {
	var end *sessionEnd
	switch {
	case errors.As(err, &end):
		return err
	case errors.Is(err, websocket.ErrReadLimit):
		return ended(endProtocol, "a message is longer than what is read of one")
	}
	return err
}

// handle does what a message asks for. It must not wait for anything but the rest of the message, with the one exception that admit
// explains.
func (s *session) handle(header wire.Header, head []byte, body io.Reader) error {
	st := s.stream(header.Stream)
	switch header.Type {
	case wire.Data:
		if st == nil {
			s.unknown(header.Stream)
			return nil
		}
		return st.receive(head, body)
	case wire.Error:
		text, err := readText(head, body)
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
		s.violation("it asks the hub to dial")
		s.refuse(header.Stream, "this hub does not dial for agents")
	case wire.AddClient, wire.RemoveClient:
		s.violation("it speaks for other agents, as a hub would")
	default:
		s.violation("it sends messages of an unknown type")
	}
	return nil
}

func readText(head []byte, body io.Reader) (string, error) {
	text := append(make([]byte, 0, maxErrorText), head[:min(len(head), maxErrorText)]...)
	rest, err := io.ReadAll(io.LimitReader(body, int64(maxErrorText-len(text))))
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
func (s *session) unknown(id int64) {
	s.mu.Lock()
	had := id > 0 && id <= s.last
	s.mu.Unlock()
	if !had {
		s.violation("it sends data of streams that the hub has not opened")
		s.refuse(id, "there is no such stream")
	}
}

// refuse ends a stream that the hub does not have, unless so many are refused that answers would only be more work.
func (s *session) refuse(id int64, why string) {
	if s.violations.answer() {
		s.control(id, wire.Error, why)
	}
}

// handleSync ends the streams that the agent does not have any more.
func (s *session) handleSync(head []byte, body io.Reader) error {
	rest, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	ids, err := wire.ParseStreams(append(append([]byte{}, head...), rest...))
	if err != nil {
		return ended(endProtocol, "%w", err)
	}
	known := make(map[int64]bool, len(ids))
	for _, id := range ids {
		known[id] = true
	}
	var gone []*stream
	s.mu.Lock()
	for id, st := range s.streams {
		if !known[id] && time.Since(st.opened) > s.manager.syncAge {
			gone = append(gone, st)
		}
	}
	s.mu.Unlock()
	for _, st := range gone {
		st.end(&RemoteError{Text: "it does not know this connection any more"}, false)
	}
	return nil
}
