package session

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/wire"
)

// discardConn is a connection to an agent that reads everything.
type discardConn struct{ net.Conn }

func (discardConn) Write(p []byte) (int, error)      { return len(p), nil }
func (discardConn) SetWriteDeadline(time.Time) error { return nil }
func (discardConn) Close() error                     { return nil }

// FuzzMessages sends arbitrary messages of an agent to a session: its memory stays within the limits, and nothing is left at the end.
func FuzzMessages(f *testing.F) {
	message := func(stream int64, kind wire.Type, body string) []byte {
		b := append(wire.AppendHeader(nil, 1, wire.Header{Stream: stream, Type: kind}), body...)
		return append([]byte{byte(len(b))}, b...)
	}
	f.Add(bytes.Join([][]byte{message(1, wire.Data, "hello"), message(1, wire.Pause, ""), message(1, wire.Resume, ""),
		message(1, wire.Error, "EOF")}, nil))
	f.Add(bytes.Join([][]byte{message(2, wire.Data, "x"), message(0, wire.SyncConnections, "12345678"), message(7, wire.Connect, "tcp/a:1")},
		nil))
	f.Add(bytes.Repeat(message(1, wire.Data, string(make([]byte, 100))), 200))
	f.Fuzz(func(t *testing.T, input []byte) {
		m := NewShared(Limits{Pause: 1 << 10, Stall: 4 << 10, StallTime: time.Nanosecond, Stream: 8 << 10, Session: 16 << 10, SyncAge: time.Nanosecond}, nil)
		conn := NewSocket(discardConn{}, m)
		s := New(m, conn, &websocket.Conn{}, Options{Peer: "a"})
		var streams []*stream
		for range 3 {
			st, err := s.open(t.Context(), "tcp", "a:1")
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, st)
		}
		for len(input) > 0 {
			n := min(int(input[0]), len(input)-1)
			body := bytes.NewReader(input[1 : 1+n])
			input = input[1+n:]
			head := make([]byte, 64)
			length, header, err := readHeader(body, head)
			if err == nil {
				err = s.handle(header, head[length.parsed:length.read], body)
			}
			if err != nil && !errors.Is(err, io.EOF) {
				break
			}
			// What comes last may add a chunk before the next message finds the session full.
			if used := s.used.Load(); used > 16<<10+2*largeChunk {
				t.Fatalf("%d bytes are kept", used)
			}
		}
		for _, st := range streams {
			_ = st.Close()
		}
		if s.used.Load() != 0 || m.used.Load() != 0 || len(s.all()) != 0 {
			t.Errorf("%d and %d bytes, and %d streams are left", s.used.Load(), m.used.Load(), len(s.all()))
		}
	})
}
