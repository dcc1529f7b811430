package tunnel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/drover-dev/drover/hub/testenv/tunneltest"
	"github.com/drover-dev/drover/hub/testenv/wait"
)

// TestNetConn runs the standard checks of net.Conn on a stream whose other end is a pipe at an agent.
func TestNetConn(t *testing.T) {
	t.Parallel()
	hub := startHub(t, Limits{})
	ends := make(chan net.Conn, 1)
	hub.connect(t, "agent", func(context.Context, string, string) (net.Conn, error) {
		agents, targets := net.Pipe()
		ends <- targets
		return agents, nil
	})
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		ours, err := hub.Dial(t.Context(), "agent", "tcp", "a:1")
		if err != nil {
			return nil, nil, nil, err
		}
		theirs := <-ends
		return ours, theirs, func() { _ = ours.Close(); _ = theirs.Close() }, nil
	})
}

func TestAddresses(t *testing.T) {
	hub := startHub(t, Limits{})
	hub.connect(t, "agent", nil)
	conn := hub.dial(t, "agent", "127.0.0.1:1")
	if conn.LocalAddr().String() != "agent" || conn.RemoteAddr().String() != "127.0.0.1:1" || conn.RemoteAddr().Network() != "tcp" {
		t.Errorf("from %v to %v", conn.LocalAddr(), conn.RemoteAddr())
	}
}

// TestTargetCloses: a consumer reads everything that the target has sent before it closed, and then EOF.
func TestTargetCloses(t *testing.T) {
	hub := startHub(t, Limits{})
	hub.connect(t, "agent", nil)
	sent := random(3 << 20)
	conn := hub.dial(t, "agent", tunneltest.Listen(t, func(c net.Conn) { _, _ = c.Write(sent) }))
	time.Sleep(50 * time.Millisecond)
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(sent), err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("writing afterwards: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading a closed stream: %v", err)
	}
}

// TestWriteDeadline: a deadline has no effect after a write, and a write that times out returns how much was sent.
func TestWriteDeadline(t *testing.T) {
	t.Parallel()
	hub := startHub(t, Limits{})
	hub.connect(t, "agent", nil)
	address := tunneltest.Listen(t, tunneltest.Echo)
	var conn net.Conn
	// A busy machine may be longer about one of them.
	wait.Until(t, time.Minute, "all writes meet their deadlines", func() bool {
		conn = hub.dial(t, "agent", address)
		for range 100 {
			_ = conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			if _, err := conn.Write([]byte("x")); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				return false
			}
		}
		return true
	})
	_ = conn.SetWriteDeadline(time.Time{})
	time.Sleep(100 * time.Millisecond)
	if _, err := conn.Write([]byte("y")); err != nil {
		t.Fatalf("a write after deadlines that were met: %v", err)
	}
	if got, err := io.ReadAll(io.LimitReader(conn, 101)); len(got) != 101 {
		t.Fatalf("%d bytes came back, %v", len(got), err)
	}

	stuck := hub.dial(t, "agent", tunneltest.Listen(t, func(net.Conn) { <-t.Context().Done() }))
	much := make([]byte, 64<<20)
	_ = stuck.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := stuck.Write(much)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 64<<20 {
		t.Errorf("a write without a reader: %d bytes, %v", n, err)
	}
}

// TestBothDirections has a target that responds only as fast as it is read, while both ends are slow in turn: an agent of the library that
// has paused the hub does not send either.
func TestBothDirections(t *testing.T) {
	hub := startHub(t, Limits{})
	hub.connect(t, "agent", nil)
	conn := hub.dial(t, "agent", tunneltest.Listen(t, tunneltest.Echo))
	sent := random(24 << 20)
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(1<<20))
			if _, err := conn.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	got := make([]byte, len(sent))
	for read := 0; read < len(got); {
		n, err := conn.Read(got[read:min(len(got), read+256<<10)])
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", read, len(got), err)
		}
		if read += n; rand.IntN(20) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if !bytes.Equal(got, sent) {
		t.Error("what came back is not what was sent")
	}
}

// TestSlowTarget has a target that reads nothing until the hub has read its whole response.
func TestSlowTarget(t *testing.T) {
	hub := startHub(t, Limits{})
	hub.connect(t, "agent", nil)
	const size = 12 << 20
	conn := hub.dial(t, "agent", tunneltest.Listen(t, func(c net.Conn) {
		_, _ = c.Write(make([]byte, size))
		_, _ = io.CopyN(io.Discard, c, size)
		_, _ = c.Write([]byte("done"))
	}))
	go func() { _, _ = conn.Write(make([]byte, size)) }()
	time.Sleep(100 * time.Millisecond)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.ReadFull(conn, make([]byte, size+4)); err != nil {
		t.Fatalf("%d bytes, then %v", n, err)
	}
}

func random(size int) []byte {
	b := make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b)
	return b
}
