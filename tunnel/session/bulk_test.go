package session

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// TestReadAhead: for all sizes of writes and reads, the bytes are the same, and a connection that waits for more has no buffer.
func TestReadAhead(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, ask := range map[string]int{"small reads": 100, "as TLS asks": 5 << 10, "large reads": 200 << 10} {
		t.Run(name, func(t *testing.T) {
			sent := random(1 << 20)
			client, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			conn, err := Listener(listener).Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() { _, _ = client.Write(sent) }()
			got := make([]byte, 0, len(sent))
			for p := make([]byte, ask); len(got) < len(sent); {
				n, err := conn.Read(p)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p[:n]...)
			}
			if !bytes.Equal(got, sent) {
				t.Error("what is read is not what was written")
			}
			for range 2 {
				_, _ = client.Write([]byte("ping"))
				if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
					t.Fatal(err)
				}
			}
			if conn.(*bulk).ahead != nil {
				t.Error("an idle connection keeps its buffer")
			}
			_ = client.Close()
			if n, err := conn.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %d bytes, %v", n, err)
			}
		})
	}
}

func random(size int) []byte {
	b := make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b)
	return b
}
