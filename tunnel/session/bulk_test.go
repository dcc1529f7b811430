package session

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"sync/atomic"
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

// countedConn counts writes.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// wrapped is a connection that does not hide what is below it, as that of a listener with limits.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// TestOneWriteForManyRecords: all records of TLS that a batch becomes are written at once, also through a wrapper.
func TestOneWriteForManyRecords(t *testing.T) {
	near, far := tcpPair(t)
	counted := &countedConn{Conn: near}
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	ours := tls.Server(wrapped{Bulk(counted)}, server.TLS)
	theirs := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
	socket := NewSocket(ours, NewShared(Limits{}, nil))
	for _, size := range []int{100, bulkWrite, bulkWrite + 1, batchSize + clientQuantum} {
		sent := random(size)
		failed := make(chan error, 1)
		go func() {
			before := counted.writes.Load()
			_, err := socket.Write(sent)
			if n := counted.writes.Load() - before; err == nil && size > bulkWrite && before > 5 && n != 1 {
				err = fmt.Errorf("%d bytes are written in %d pieces", size, n)
			}
			failed <- err
		}()
		got := make([]byte, size)
		if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if ours.ConnectionState().Version == 0 {
		t.Error("there is no TLS")
	}
}

func random(size int) []byte {
	b := make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b)
	return b
}
