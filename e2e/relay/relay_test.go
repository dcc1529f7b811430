package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a server that sends back what it gets, and ends when its client does.
func echo(t *testing.T) net.Listener {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func newRelay(t *testing.T) (r *Relay, dial func() *net.TCPConn) {
	t.Helper()
	server, listener := echo(t), listen(t)
	r = New(listener, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr().String())
	}, 1)
	t.Cleanup(r.Close)
	return r, func() *net.TCPConn {
		t.Helper()
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn.(*net.TCPConn)
	}
}

// ask sends a message and returns how long the echo took.
func ask(t *testing.T, conn net.Conn, message string) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	if err := conn.SetDeadline(began.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(message)); err != nil {
		return 0, err
	}
	got := make([]byte, len(message))
	if _, err := io.ReadFull(conn, got); err != nil {
		return 0, err
	}
	if string(got) != message {
		t.Errorf("%q came back as %q", message, got)
	}
	return time.Since(began), nil
}

func TestEveryByteArrivesOverABadLine(t *testing.T) {
	r, dial := newRelay(t)
	r.SetQuality(Quality{RoundTrip: 4 * time.Millisecond, Loss: 0.01})
	conn := dial()
	sent := make([]byte, 3<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(sent)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
		t.Errorf("%d bytes of %d came back, the same: %v; %v", len(got), len(sent), bytes.Equal(got, sent), err)
	}
}

func TestDelayIsOfTheLineAndNotOfTheRelay(t *testing.T) {
	r, dial := newRelay(t)
	conn := dial()
	r.SetQuality(Quality{RoundTrip: 100 * time.Millisecond})
	took, err := ask(t, conn, "hello")
	if err != nil || took < 100*time.Millisecond {
		t.Errorf("an echo took %s over a line of 100 ms, %v", took, err)
	}
	r.SetQuality(Quality{})
	// A busy machine may hold an echo up, but not every one.
	for range 100 {
		if took, err = ask(t, conn, "hello"); err != nil || took < 90*time.Millisecond {
			break
		}
	}
	if err != nil || took >= 90*time.Millisecond {
		t.Errorf("an echo took %s over a line without delay, %v", took, err)
	}
}

func TestAFrozenLineTellsNobody(t *testing.T) {
	r, dial := newRelay(t)
	old := dial()
	if _, err := ask(t, old, "before"); err != nil {
		t.Fatal(err)
	}
	if n := r.Freeze(); n != 1 {
		t.Errorf("%d lines were frozen", n)
	}
	if n := r.Freeze(); n != 0 {
		t.Errorf("%d lines were frozen again", n)
	}
	if _, err := old.Write([]byte("into the void")); err != nil {
		t.Errorf("the end was told: %v", err)
	}
	if err := old.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := old.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if _, err := ask(t, dial(), "a new one"); err != nil {
		t.Errorf("a new connection is not carried: %v", err)
	}
}

func TestACutLineEndsAllAndTakesNone(t *testing.T) {
	r, dial := newRelay(t)
	frozen, healthy := dial(), dial()
	for _, conn := range []net.Conn{frozen, healthy} {
		if _, err := ask(t, conn, "before"); err != nil {
			t.Fatal(err)
		}
	}
	r.Freeze()
	r.Cut()
	for _, conn := range []net.Conn{frozen, healthy} {
		if _, err := ask(t, conn, "after"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the end was not told: %v", err)
		}
	}
	assertRefused(t, r.listener)
	r.Restore()
	if _, err := ask(t, dial(), "restored"); err != nil {
		t.Error(err)
	}
}

func TestWhatDoesNotListenRefuses(t *testing.T) {
	listener := listen(t)
	r := New(listener, func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }, 1)
	defer r.Close()
	assertRefused(t, listener)
}

// assertRefused takes a reset at once for a refusal, too: a listener in a process cannot do better.
func assertRefused(t *testing.T, listener net.Listener) {
	t.Helper()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := ask(t, conn, "hello"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection was not refused: %v", err)
	}
}

func TestDelay(t *testing.T) {
	for name, test := range map[string]struct {
		quality Quality
		bytes   int
		chance  float64
		want    time.Duration
	}{
		"a perfect line":                      {Quality{}, chunkSize, 0, 0},
		"far away":                            {Quality{RoundTrip: 40 * time.Millisecond}, 10, 0, 20 * time.Millisecond},
		"lost in a stream":                    {Quality{RoundTrip: 40 * time.Millisecond, Loss: 0.01}, chunkSize, 0.1, 60 * time.Millisecond},
		"lost at the end of a message":        {Quality{RoundTrip: 40 * time.Millisecond, Loss: 0.01}, 10, 0.009, 260 * time.Millisecond},
		"not lost":                            {Quality{RoundTrip: 40 * time.Millisecond, Loss: 0.01}, 10, 0.011, 20 * time.Millisecond},
		"many packets are lost more often":    {Quality{Loss: 0.01}, 2 * segmentSize, 0.019, retransmitTimeout},
		"two packets are not three":           {Quality{Loss: 0.01}, 2 * segmentSize, 0.02, 0},
		"a line that loses all, with a delay": {Quality{RoundTrip: 2, Loss: 1}, 1, 0.9999, retransmitTimeout + 3},
	} {
		if got := test.quality.delay(test.bytes, test.chance); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
