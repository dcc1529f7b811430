package tunnel

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/hub/access/tunnel"
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
			patience, still = 8*time.Second, time.Minute
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
		patience := time.Second
		if !isLibrary {
			// No session ends or is suspected for being silent: the hub has nothing to go by but which one is the newest.
			limits := tunnel.Limits{Suspect: time.Hour, Timeout: time.Hour, SiblingTimeout: time.Hour}
			h, patience = ours(t, tunnel.Options{Logger: logr.Discard(), Limits: limits}), time.Minute
		}
		tap := newWireTap(t)
		h.agent(t.Context(), t, "a", nil, tap)
		address := tunneltest.Listen(t, tunneltest.Echo)
		if !works(h, "a", address, time.Minute) {
			t.Fatal("the first session does not work")
		}
		used := h.newest(t, "a", nil)
		if isLibrary {
			time.Sleep(100 * time.Millisecond) // until it has the session, which it never uses
		} else {
			wait.Until(t, time.Minute, "the newer session is used", func() bool { return works(h, "a", address, time.Minute) && used() })
		}
		tap.freeze()
		worked := 0
		for range 4 {
			if works(h, "a", address, patience) {
				worked++
			}
		}
		if isLibrary && worked > 0 || !isLibrary && worked < 4 {
			t.Errorf("%d of 4 dials work with the older session gone", worked)
		}
	})
}

// TestStaleNewestSession freezes the newer session: the hub goes back to the older one after some 3 s, though neither ends.
func TestStaleNewestSession(t *testing.T) {
	t.Parallel()
	h := ours(t, tunnel.Options{Logger: logr.Discard(), Limits: tunnel.Limits{Timeout: time.Hour, SiblingTimeout: time.Hour}})
	h.agent(t.Context(), t, "a", nil, nil)
	tap := newWireTap(t)
	used := h.newest(t, "a", tap)
	address := tunneltest.Listen(t, tunneltest.Echo)
	wait.Until(t, time.Minute, "the newer session is used", func() bool { return works(h, "a", address, time.Minute) && used() })
	tap.freeze()
	took := wait.Until(t, time.Minute, "the older session is used", func() bool { return works(h, "a", address, time.Second) })
	t.Logf("the older session was used after %s", took.Round(time.Millisecond))
}

// TestBlackHole freezes the network of the newer session of this repository's agent while it is used: what is dialed next uses the older
// one as soon as a ping is not answered.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	// No session ends or is suspected only for being silent.
	limits := tunnel.Limits{Suspect: time.Hour, Timeout: time.Hour, SiblingTimeout: time.Hour}
	h := ours(t, tunnel.Options{Logger: logr.Discard(), Limits: limits})
	h.ownAgent(t.Context(), t, "a", "", nil)
	network := h.relay(t)
	var dials atomic.Int64
	h.ownAgent(t.Context(), t, "a", network.url, func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	address := tunneltest.Listen(t, tunneltest.Echo)
	wait.Until(t, time.Minute, "the newer session is used", func() bool { return works(h, "a", address, time.Minute) && dials.Load() > 0 })
	if network.Freeze() == 0 {
		t.Fatal("nothing is frozen")
	}
	var worked atomic.Bool
	var attempts sync.WaitGroup
	took := wait.Until(t, time.Minute, "a dial works", func() bool {
		attempts.Go(func() {
			if works(h, "a", address, 2*time.Second) {
				worked.Store(true)
			}
		})
		time.Sleep(20 * time.Millisecond)
		return worked.Load()
	})
	attempts.Wait()
	t.Logf("the older session was used after %s", took.Round(time.Millisecond))
}

// newest connects a second agent, and returns whether a dial has come through it: hub.agent does not see when the hub has another
// session of a key.
func (h *hub) newest(t *testing.T, key string, through *wireTap) (used func() bool) {
	t.Helper()
	var dials atomic.Int64
	h.agent(t.Context(), t, key, func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}, through)
	return func() bool { return dials.Load() > 0 }
}

// works asks for an echo and waits for it.
func works(h *hub, key, address string, patience time.Duration) bool {
	conn, err := h.dial(context.Background(), key, "tcp", address)
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
	case <-time.After(patience):
		return false
	}
}

// TestFrozenAgentHarmsNobody ends the session of an agent that has stopped to read. The library holds the lock of all sessions while it
// tries for 5 s to tell that agent about each of its streams, which is 80 s for all of them.
func TestFrozenAgentHarmsNobody(t *testing.T) {
	both(t, func(t *testing.T, h *hub, isLibrary bool) {
		h.agent(t.Context(), t, "other", nil, nil)
		ws := h.raw(t, "frozen")
		var conns []net.Conn
		for range 16 {
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
		for last, still := int64(-1), 0; still < 4; time.Sleep(150 * time.Millisecond) {
			now := written.Load() // until all buffers are full
			if still++; now != last {
				last, still = now, 0
			}
		}
		if err := ws.NetConn().(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		limit := time.Minute
		if isLibrary {
			limit = 3 * time.Second
		}
		stalled, gone := false, false
		for end := time.Now().Add(2 * time.Minute); !stalled && !gone; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the session of the frozen agent does not end")
			}
			asked := make(chan bool, 1)
			go func() {
				h.connected("other")
				asked <- !h.connected("frozen")
			}()
			select {
			case gone = <-asked:
			case <-time.After(limit):
				stalled = true
			}
		}
		if stalled != isLibrary {
			t.Errorf("while the session ends, asking for another agent takes longer than %s: %v", limit, stalled)
		}
	})
}

// TestPausedCloseLeaks closes streams whose agent is paused. The agent's writer waits for ever where it is not told to go on first.
func TestPausedCloseLeaks(t *testing.T) {
	// Goroutines are counted, so that the two do not run side by side, and the library, which leaves some behind, comes last.
	for _, name := range []string{"hub", "library"} {
		t.Run(name, func(t *testing.T) {
			h, isLibrary := ours(t, quiet), name == "library"
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
			wait.Until(t, time.Minute, "all agents' writers are paused", func() bool { return waiting()-before >= 15 })
			paused := waiting() - before
			for _, conn := range conns {
				_ = conn.Close()
			}
			if !isLibrary {
				wait.Until(t, time.Minute, "no writer of the agent waits any more", func() bool { return waiting() <= before })
				return
			}
			time.Sleep(time.Second)
			if left := waiting() - before; left < paused/2 {
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
		address := tunneltest.Listen(t, tunneltest.Echo)
		var conn net.Conn
		wait.Until(t, time.Minute, "a write meets its deadline", func() bool {
			conn = h.open(t, "a", address)
			_ = conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			_, err := conn.Write([]byte("x"))
			return err == nil
		})
		_ = conn.SetWriteDeadline(time.Time{})
		if isLibrary {
			wait.Until(t, time.Minute, "the library has closed the connection", func() bool {
				_, err := conn.Write([]byte("y"))
				return err != nil
			})
			return
		}
		time.Sleep(500 * time.Millisecond)
		if _, err := conn.Write([]byte("y")); err != nil {
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
