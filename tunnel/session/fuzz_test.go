package session

import (
	"bytes"
	"context"
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

// FuzzMessages sends arbitrary messages to both ends of a session, one that opens streams and one that dials: memory stays within the
// limits, and nothing is left at the end.
func FuzzMessages(f *testing.F) {
	message := func(stream int64, kind wire.Type, body string) []byte {
		b := append(wire.AppendHeader(nil, 1, wire.Header{Stream: stream, Type: kind}), body...)
		return append([]byte{byte(len(b))}, b...)
	}
	add := func(messages ...[]byte) {
		for _, dials := range []bool{false, true} {
			for _, directional := range []bool{false, true} {
				f.Add(bytes.Join(messages, nil), dials, directional)
			}
		}
	}
	add(message(1, wire.Data, "hello"), message(1, wire.Pause, ""), message(1, wire.Resume, ""), message(1, wire.Error, "EOF"))
	add(message(2, wire.Data, "x"), message(0, wire.SyncConnections, "12345678"), message(7, wire.Connect, "tcp/a:1"))
	add(bytes.Repeat(message(1, wire.Data, string(make([]byte, 100))), 200))
	add(message(1, wire.Connect, "tcp/a:1"), message(1, wire.Connect, "tcp/a:1"), message(2, wire.Connect, "bad"),
		message(1, wire.Data, string(make([]byte, 200))), message(3, wire.Connect, "tcp/refused"), message(1, wire.Error, "EOF"))
	f.Fuzz(func(t *testing.T, input []byte, dials, directional bool) {
		const limit = 16 << 10
		shared := NewShared(Limits{Pause: 1 << 10, Stall: 4 << 10, StallTime: time.Nanosecond, Stream: 8 << 10, Session: limit, Streams: 8,
			SyncAge: time.Nanosecond}, nil)
		o := Options{Peer: "a", Client: dials, Directional: directional}
		if dials {
			o.Dial = dialStuck
		}
		s := New(shared, NewSocket(discardConn{}, shared), &websocket.Conn{}, o)
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
			if used := s.used.Load(); used > limit+2*largeChunk {
				t.Fatalf("%d bytes are kept", used)
			}
		}
		for _, st := range streams {
			_ = st.Close()
		}
		s.endStreams(Ended(Protocol, "the end of the input"))
		s.dialed.Wait()
		if s.used.Load() != 0 || shared.Used() != 0 || len(s.all()) != 0 {
			t.Errorf("%d and %d bytes, and %d streams are left", s.used.Load(), shared.Used(), len(s.all()))
		}
	})
}

// dialStuck dials targets that take nothing and send a little.
func dialStuck(_ context.Context, _, address string) (net.Conn, error) {
	if address == "refused" {
		return nil, errors.New("not allowed")
	}
	near, far := net.Pipe()
	go func() { _, _ = far.Write([]byte("hello")) }()
	return near, nil
}
