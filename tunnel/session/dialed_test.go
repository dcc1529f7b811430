package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// noSocket is a connection without a socket.
type noSocket struct{ net.Conn }

// tcpPair are the ends of a TCP connection.
func tcpPair(t testing.TB) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// given returns a Dial that returns these connections in turn.
func given(conns ...net.Conn) Dial {
	var next atomic.Int64
	return func(context.Context, string, string) (net.Conn, error) { return conns[next.Add(1)-1], nil }
}

// TestNetConn runs the standard checks of net.Conn on streams between two ends of this package, and on streams of ends that compensate for
// the library.
func TestNetConn(t *testing.T) {
	for name, directional := range map[string]bool{"directional": true, "as for the library": false} {
		t.Run(name, func(t *testing.T) {
			ends := make(chan net.Conn, 1)
			p := connect(t, Limits{}, directional, func(context.Context, string, string) (net.Conn, error) {
				agents, targets := net.Pipe()
				ends <- targets
				return agents, nil
			})
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				ours, err := p.hub.Open(t.Context(), "tcp", "a:1")
				if err != nil {
					return nil, nil, nil, err
				}
				theirs := <-ends
				return ours, theirs, func() { _, _ = ours.Close(), theirs.Close() }, nil
			})
		})
	}
}

// TestCopies sends pieces of all sizes in both directions, with a socket as target and without.
func TestCopies(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"socket": func(c net.Conn) net.Conn { return c },
		"other":  func(c net.Conn) net.Conn { return noSocket{c} },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := tcpPair(t)
			conn := connect(t, Limits{}, true, given(wrap(near))).open(t, "a:1")
			sizes := []int{1, smallChunk - 1, smallChunk, smallChunk + 1, largeChunk + 1, clientQuantum - 1, clientQuantum, clientQuantum + 1,
				300_000, 2, 3 << 20}
			total := 0
			for _, size := range sizes {
				total += size
			}
			want := random(total)
			for from, to := range map[net.Conn]net.Conn{conn: far, far: conn} {
				go func() {
					rest := want
					for _, size := range sizes {
						_, _ = from.Write(rest[:size])
						rest = rest[size:]
						time.Sleep(time.Millisecond)
					}
				}()
				got := make([]byte, total)
				if n, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d of %d bytes, %v", n, total, err)
				}
			}
			_ = far.Close()
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("when the target has closed: %v", err)
			}
		})
	}
}

// TestTargetGetsEverything: what the hub sends while the agent dials arrives, also if the hub has closed the stream meanwhile.
func TestTargetGetsEverything(t *testing.T) {
	near, far := tcpPair(t)
	dial := make(chan struct{})
	p := connect(t, Limits{}, true, func(context.Context, string, string) (net.Conn, error) {
		<-dial
		return near, nil
	})
	want := random(300 << 10)
	conn := p.open(t, "a:1")
	if _, err := conn.Write(want); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	time.Sleep(20 * time.Millisecond)
	close(dial)
	if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
}

// TestHubGetsEverything: what the target has sent before it stopped reading arrives.
func TestHubGetsEverything(t *testing.T) {
	near, far := tcpPair(t)
	conn := connect(t, Limits{}, true, given(near)).open(t, "a:1")
	want := random(2 << 20)
	go func() {
		_, _ = far.Write(want)
		_ = far.(*net.TCPConn).CloseWrite()
	}()
	time.Sleep(20 * time.Millisecond)
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
}

// TestOneStreamDoesNotBlockOthers has a dial that takes for ever, and a target that does not read what it is sent.
func TestOneStreamDoesNotBlockOthers(t *testing.T) {
	near, _ := tcpPair(t)
	other, echo := tcpPair(t)
	go func() { _, _ = io.Copy(echo, echo) }()
	p := connect(t, Limits{}, true, func(ctx context.Context, _, address string) (net.Conn, error) {
		switch address {
		case "slow:1":
			<-ctx.Done()
			return nil, ctx.Err()
		case "stuck:1":
			return near, nil
		}
		return other, nil
	})
	for _, address := range []string{"slow:1", "stuck:1"} {
		conn := p.open(t, address)
		go func() { _, _ = conn.Write(make([]byte, 64<<20)) }()
	}
	conn := p.open(t, "echo:1")
	want := random(4 << 20)
	go func() { _, _ = conn.Write(want) }()
	got := make([]byte, len(want))
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", n, len(want), err)
	}
	// The hub may send much before it sees that it is to pause, but not all of the 64 MiB of each.
	if used := p.agentShared.Used(); used > int64(2*p.agentShared.Limits().Stream+2*largeChunk) {
		t.Errorf("the agent holds %d KiB for two streams", used>>10)
	}
}

// TestNothingIsLeft: streams that end while they are paused, while they are dialed and while they are delivered leave nothing behind, and
// neither does the end of the session.
func TestNothingIsLeft(t *testing.T) {
	for name, directional := range map[string]bool{"directional": true, "as for the library": false} {
		t.Run(name, func(t *testing.T) {
			before := goroutines()
			flood := func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					for err := error(nil); err == nil; {
						_, err = far.Write(make([]byte, 64<<10))
					}
				}()
				return near, nil
			}
			p := connect(t, Limits{}, directional, func(ctx context.Context, network, address string) (net.Conn, error) {
				switch address {
				case "slow:1":
					<-ctx.Done()
					return nil, ctx.Err()
				case "stuck:1":
					near, _ := net.Pipe()
					return near, nil
				}
				return flood(ctx, network, address)
			})
			var conns []net.Conn
			for range 5 {
				for _, address := range []string{"flood:1", "slow:1", "stuck:1"} {
					conn := p.open(t, address)
					go func() { _, _ = conn.Write(make([]byte, 8<<20)) }()
					conns = append(conns, conn)
				}
			}
			eventually(t, "the floods are paused", func() bool { return p.hubShared.Used() >= 5*512<<10 })
			for _, conn := range conns[:9] {
				_ = conn.Close()
			}
			p.end()
			eventually(t, "no goroutine is left", func() bool { return goroutines() <= before })
			if p.agentShared.Used() != 0 {
				t.Errorf("the agent holds %d bytes", p.agentShared.Used())
			}
		})
	}
}

// goroutines counts those of this package's sessions and streams.
func goroutines() int {
	stacks := make([]byte, 4<<20)
	text := string(stacks[:runtime.Stack(stacks, true)])
	return strings.Count(text, "session.(*Session).") + strings.Count(text, "session.(*stream).")
}

// TestSync: the hub ends streams that are not in the agent's list.
func TestSync(t *testing.T) {
	p := connectTo(t, Limits{SyncAge: time.Nanosecond}, Limits{}, true, func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(far, far) }()
		return near, nil
	})
	kept := p.open(t, "a:1")
	lost := newStream(p.hub, 99, "tcp", "a:1") // the agent never got to know of it
	p.hub.mu.Lock()
	p.hub.streams[lost.id] = lost
	p.hub.mu.Unlock()
	echo := func(conn net.Conn) error {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	if err := echo(kept); err != nil {
		t.Fatal(err)
	}
	p.agent.Sync()
	if _, err := lost.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "does not know this connection") {
		t.Errorf("the stream that the agent does not have: %v", err)
	}
	if err := echo(kept); err != nil {
		t.Errorf("the other stream: %v", err)
	}
}

// TestRefusals: dials that fail, a stream that is open, and a peer that does not dial end one stream each.
func TestRefusals(t *testing.T) {
	near, far := tcpPair(t)
	go func() { _, _ = io.Copy(far, far) }()
	p := connect(t, Limits{Streams: 2}, true, func(_ context.Context, _, address string) (net.Conn, error) {
		if address == "bad:1" {
			return nil, errors.New("not allowed here")
		}
		return near, nil
	})
	good := p.open(t, "good:1")
	refused := func(conn net.Conn, text string) {
		t.Helper()
		if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	refused(p.open(t, "bad:1"), "not allowed here")
	backwards, err := p.agent.Open(t.Context(), "tcp", "a:1")
	if err != nil {
		t.Fatal(err)
	}
	refused(backwards, "does not dial")
	if p.hub.Violations() != 1 {
		t.Errorf("%d violations of the agent", p.hub.Violations())
	}
	if _, err := good.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(good, make([]byte, 1)); err != nil {
		t.Errorf("the other stream: %v", err)
	}
	p.open(t, "good:1")
	refused(p.open(t, "good:1"), "limit of 2 connections")
}
