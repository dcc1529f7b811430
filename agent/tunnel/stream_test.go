package tunnel

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// oddConn is a connection without a socket.
type oddConn struct{ net.Conn }

// Both directions of a stream, with a socket and without one, in pieces of all sizes.
func TestStreamCopies(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"socket": func(c net.Conn) net.Conn { return c },
		"other":  func(c net.Conn) net.Conn { return oddConn{c} },
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			near, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			far, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			var sent counters
			sent.open.Add(1)
			s := newStream(wrap(near), &sent)
			want := make([]byte, 0, 1<<20)
			sizes := []int{1, smallBytes - 1, smallBytes, smallBytes + 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 300_000, 2}
			for _, size := range sizes {
				want = append(want, make([]byte, size)...)
			}
			_, _ = rand.Read(want)

			// from here to the tunnel
			go func() {
				rest := want
				for _, size := range sizes {
					_, _ = far.Write(rest[:size])
					rest = rest[size:]
					time.Sleep(time.Millisecond)
				}
				_ = far.(*net.TCPConn).CloseWrite()
			}()
			var tunnel bytes.Buffer
			if n, err := s.WriteTo(&tunnel); err != nil || n != int64(len(want)) || !bytes.Equal(tunnel.Bytes(), want) || sent.sent.Load() != n {
				t.Errorf("%d of %d bytes, %v", n, len(want), err)
			}
			// and back
			got := make(chan []byte)
			go func() {
				raw := make([]byte, len(want))
				_, _ = io.ReadFull(far, raw)
				got <- raw
			}()
			if n, err := s.ReadFrom(bytes.NewReader(want)); err != nil || n != int64(len(want)) || sent.received.Load() != n {
				t.Errorf("%d of %d bytes, %v", n, len(want), err)
			}
			if !bytes.Equal(<-got, want) {
				t.Error("what arrives is not what was sent")
			}
			for range 2 {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if n := sent.open.Load(); n != 0 {
				t.Errorf("%d streams are open", n)
			}
			if _, err := s.WriteTo(&tunnel); !errors.Is(err, net.ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}
