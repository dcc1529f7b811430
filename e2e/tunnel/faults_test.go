package tunnel

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/hub/testenv/tunneltest"
	"github.com/drover-dev/drover/hub/testenv/wait"
)

// Each test shows a fault of the library's server on the library, and that the hub is without it. Where the library stalls for a minute, it
// is enough that it still does after some seconds.

// TestMutualPause loads streams in both directions with slow readers at both ends. The library's two readers wait for each other's writers.
func TestMutualPause(t *testing.T) {
	both(t, func(t *testing.T, h *hub, isLibrary bool) {
		h.agent(t.Context(), t, "a", nil, nil)
		var moved atomic.Int64
		slowReader := func(conn net.Conn) {
			go func() {
				buffer := make([]byte, 32<<10)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					moved.Add(int64(n))
					time.Sleep(2 * time.Millisecond)
				}
			}()
			data := make([]byte, 64<<10)
			for {
				if _, err := conn.Write(data); err != nil {
					return
				}
			}
		}
		address := tunneltest.Listen(t, slowReader)
		for range 16 {
			// The library may freeze before all of them are open.
			go func() {
				if conn, err := h.dial(context.Background(), "a", "tcp", address); err == nil {
					slowReader(conn)
				}
			}()
		}
		// The library freezes as soon as its readers meet, which takes its time on a busy machine. The hub has some seconds to do so.
		patience, still := time.Minute, 3*time.Second
		if !isLibrary {
			patience, still = 8*time.Second, 20*time.Second
		}
		last, since := moved.Load(), time.Now()
		for end := time.Now().Add(patience); time.Since(since) < still &&
			(time.Now().Before(end) || !isLibrary && time.Since(since) > time.Second); {
			time.Sleep(200 * time.Millisecond)
			if now := moved.Load(); now != last {
				last, since = now, time.Now()
			}
		}
		if frozen := time.Since(since) >= still; frozen != isLibrary {
			t.Errorf("nothing moves any more: %v, after %d MiB", frozen, moved.Load()>>20)
		}
	})
}

// TestStaleSession freezes the network of an agent's older session. The library goes on using it for a minute.
func TestStaleSession(t *testing.T) {
	both(t, func(t *testing.T, h *hub, isLibrary bool) {
		tap := newWireTap(t)
		h.agent(t.Context(), t, "a", nil, tap)
		address := tunneltest.Listen(t, tunneltest.Echo)
		if !works(h, address) {
			t.Fatal("the first session does not work")
		}
		h.agent(t.Context(), t, "a", nil, nil)
		time.Sleep(100 * time.Millisecond)
		tap.freeze()
		worked := 0
		for range 4 {
			if works(h, address) {
				worked++
			}
		}
		if isLibrary && worked > 0 || !isLibrary && worked < 4 {
			t.Errorf("%d of 4 dials work with the older session gone", worked)
		}
	})
}

// TestStaleNewestSession freezes the newer session: the hub goes back to the older one within 3 s.
func TestStaleNewestSession(t *testing.T) {
	t.Parallel()
	h := ours(t, quiet)
	h.agent(t.Context(), t, "a", nil, nil)
	tap := newWireTap(t)
	h.agent(t.Context(), t, "a", nil, tap)
	address := tunneltest.Listen(t, tunneltest.Echo)
	time.Sleep(1500 * time.Millisecond)
	tap.freeze()
	frozen := time.Now()
	for !works(h, address) {
	}
	if took := time.Since(frozen); took > 20*time.Second {
		t.Errorf("the older session was used after %s", took)
	} else {
		t.Logf("the older session was used after %s", took.Round(time.Millisecond))
	}
}

// works asks for an echo and gives it a second.
func works(h *hub, address string) bool {
	conn, err := h.dial(context.Background(), "a", "tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	answered := make(chan bool, 1)
	go func() {
		_, _ = conn.Write([]byte("x"))
		n, _ := conn.Read(make([]byte, 1))
		answered <- n == 1
	}()
	select {
	case ok := <-answered:
		return ok
	case <-time.After(time.Second):
		return false
	}
}

// TestFrozenAgentHarmsNobody ends the session of an agent that has stopped to read. The library holds the lock of all sessions while it
// tells that agent about each of its streams.
func TestFrozenAgentHarmsNobody(t *testing.T) {
	both(t, func(t *testing.T, h *hub, isLibrary bool) {
		h.agent(t.Context(), t, "other", nil, nil)
		ws := h.raw(t, "frozen")
		var conns []net.Conn
		for range 4 {
			conns = append(conns, h.open(t, "frozen", "127.0.0.1:1"))
		}
		var written atomic.Int64
		for _, conn := range conns {
			go func() {
				data := make([]byte, 64<<10)
				for {
					n, err := conn.Write(data)
					written.Add(int64(n))
					if err != nil {
						return
					}
				}
			}()
		}
		for last := int64(-1); last != written.Load(); time.Sleep(500 * time.Millisecond) {
			last = written.Load() // until all buffers are full
		}
		if err := ws.NetConn().(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		// The library stalls once it has seen the end of the session, which takes its time on a busy machine.
		patience := 30 * time.Second
		if !isLibrary {
			patience = time.Second
		}
		stalled := false
		for end := time.Now().Add(patience); !stalled && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			asked := make(chan struct{})
			go func() {
				h.connected("other")
				close(asked)
			}()
			select {
			case <-asked:
			case <-time.After(3 * time.Second):
				stalled = true
			}
		}
		if stalled != isLibrary {
			t.Errorf("asking for another agent takes longer than 3 s: %v", stalled)
		}
	})
}

// TestPausedCloseLeaks closes streams whose agent is paused. The agent's writer waits for ever where it is not told to go on first.
func TestPausedCloseLeaks(t *testing.T) {
	// Goroutines are counted, so that the two do not run side by side.
	for name, isLibrary := range map[string]bool{"library": true, "hub": false} {
		t.Run(name, func(t *testing.T) {
			h := ours(t, quiet)
			if isLibrary {
				h = library(t)
			}
			h.agent(t.Context(), t, "a", nil, nil)
			address := tunneltest.Listen(t, func(conn net.Conn) {
				for err := error(nil); err == nil; {
					_, err = conn.Write(make([]byte, 64<<10))
				}
			})
			before := waiting()
			var conns []net.Conn
			for range 20 {
				conn := h.open(t, "a", address)
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
			wait.Until(t, 10*time.Second, "all agents' writers are paused", func() bool { return waiting()-before >= 15 })
			paused := waiting() - before
			for _, conn := range conns {
				_ = conn.Close()
			}
			time.Sleep(time.Second)
			left := waiting() - before
			if isLibrary && left < paused/2 || !isLibrary && left > 0 {
				t.Errorf("%d of %d writers of the agent wait for ever", left, paused)
			}
		})
	}
}

// waiting counts the agents' writers that wait to be told to go on.
func waiting() int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*backPressure).Wait(")
}

// TestMetDeadline sets a write deadline that is met, and lets its time pass. The library closes the connection.
func TestMetDeadline(t *testing.T) {
	both(t, func(t *testing.T, h *hub, isLibrary bool) {
		h.agent(t.Context(), t, "a", nil, nil)
		conn := h.open(t, "a", tunneltest.Listen(t, tunneltest.Echo))
		_ = conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetWriteDeadline(time.Time{})
		time.Sleep(500 * time.Millisecond)
		_, err := conn.Write([]byte("y"))
		if (err != nil) != isLibrary {
			t.Errorf("a write after a deadline that was met: %v", err)
		}
	})
}

// TestSocketIsClosed ends a session for what the agent says. The library leaves the socket to the garbage collector.
func TestSocketIsClosed(t *testing.T) {
	both(t, func(t *testing.T, h *hub, isLibrary bool) {
		ws := h.raw(t, "a")
		if err := ws.WriteMessage(websocket.TextMessage, []byte("no")); err != nil {
			t.Fatal(err)
		}
		patience := time.Minute
		if isLibrary {
			patience = time.Second
		}
		_ = ws.NetConn().SetReadDeadline(time.Now().Add(patience))
		_, err := io.Copy(io.Discard, ws.NetConn())
		if open := err != nil; open != isLibrary {
			t.Errorf("the socket is still open after %s: %v (%v)", patience, open, err)
		}
	})
}

// TestRefusedDial refuses an address at the agent's dialer, which is where an agent's allow-list must be: its authorizer ends the whole
// session.
func TestRefusedDial(t *testing.T) {
	both(t, func(t *testing.T, h *hub, _ bool) {
		h.agent(t.Context(), t, "a", func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "10.0.0.1:22" {
				return nil, &net.AddrError{Err: "not allowed", Addr: address}
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}, nil)
		good := h.open(t, "a", tunneltest.Listen(t, tunneltest.Echo))
		if _, err := h.open(t, "a", "10.0.0.1:22").Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("the refused stream answers %v", err)
		}
		if _, err := good.Write([]byte("x")); err != nil {
			t.Errorf("another stream: %v", err)
		}
		if n, err := good.Read(make([]byte, 1)); n != 1 {
			t.Errorf("another stream: %v", err)
		}
	})
}
