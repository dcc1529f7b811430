package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/drover-dev/drover/hub/testenv/tunneltest"
	"github.com/drover-dev/drover/hub/testenv/wait"
	"github.com/drover-dev/drover/tunnel/session"
	"github.com/drover-dev/drover/tunnel/wire"
)

// raw connects a websocket without an agent.
func (h *testHub) raw(t *testing.T, key string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.DefaultDialer.Dial(h.url+key, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.Close() })
	wait.Until(t, 10*time.Second, "it is connected", func() bool { return h.Connected(key) })
	return ws
}

// TestSilentAgent: the session of an agent that does not respond to pings ends, that of one which does stays.
func TestSilentAgent(t *testing.T) {
	t.Parallel()
	h := startHub(t, Limits{Ping: 500 * time.Millisecond, Timeout: 2500 * time.Millisecond})
	h.raw(t, "silent")
	alive := h.raw(t, "alive")
	go func() {
		for {
			if _, _, err := alive.ReadMessage(); err != nil {
				return
			}
		}
	}()
	conn := h.dial(t, "silent", "10.0.0.1:80")
	_, err := conn.Read(make([]byte, 1))
	if end := (*SessionEndedError)(nil); !errors.As(err, &end) || !strings.Contains(end.Reason, "no message from the agent") {
		t.Errorf("a stream of the silent agent answers %v", err)
	}
	wait.Until(t, 10*time.Second, "the silent agent is gone", func() bool { return !h.Connected("silent") })
	if !h.Connected("alive") {
		t.Error("the agent that answers was given up")
	}
}

// TestWriteTimeout: a write that takes too long ends the session.
func TestWriteTimeout(t *testing.T) {
	t.Parallel()
	h := startHub(t, Limits{Limits: session.Limits{Write: 300 * time.Millisecond}})
	h.raw(t, "stuck")
	conn := h.dial(t, "stuck", "10.0.0.1:80")
	_, err := io.Copy(conn, zeros{})
	if end := (*SessionEndedError)(nil); !errors.As(err, &end) {
		t.Errorf("the writer learns %v", err)
	}
	wait.Until(t, 10*time.Second, "the agent is gone", func() bool { return !h.Connected("stuck") })
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestSync: a stream that the agent does not have any more ends, the others do not.
func TestSync(t *testing.T) {
	t.Parallel()
	const age = 100 * time.Millisecond
	h := startHub(t, Limits{Limits: session.Limits{SyncAge: age}})
	for attempt := 1; ; attempt++ {
		key := "a" + strconv.Itoa(attempt)
		ws := h.raw(t, key)
		kept, lost := h.dial(t, key, "10.0.0.1:80"), h.dial(t, key, "10.0.0.1:80")
		time.Sleep(age + time.Millisecond)
		began := time.Now()
		fresh := h.dial(t, key, "10.0.0.1:80")
		writeFrame(t, ws, 0, wire.SyncConnections, string(binary.LittleEndian.AppendUint64(nil, 1)))
		if _, err := lost.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "does not know this connection") {
			t.Errorf("the lost stream answers %v", err)
		}
		if time.Since(began) > age && attempt < 20 {
			continue // on a busy machine, the fresh stream may have become as old as the lost one
		}
		for name, conn := range map[string]net.Conn{"kept": kept, "fresh": fresh} {
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Errorf("the %s stream: %v", name, err)
			}
		}
		return
	}
}

func writeFrame(t *testing.T, ws *websocket.Conn, stream int64, kind wire.Type, body string) {
	t.Helper()
	if err := ws.WriteMessage(websocket.BinaryMessage,
		append(wire.AppendHeader(nil, 1, wire.Header{Stream: stream, Type: kind}), body...)); err != nil {
		t.Fatal(err)
	}
}

// TestResumeBeforeClose: an agent is told to resume a stream before it is told that the stream is closed.
func TestResumeBeforeClose(t *testing.T) {
	h := startHub(t, Limits{Limits: session.Limits{Pause: 1000}})
	ws := h.raw(t, "a")
	conn := h.dial(t, "a", "10.0.0.1:80")
	writeFrame(t, ws, 1, wire.Data, strings.Repeat("x", 2000))
	var kinds []wire.Type
	for len(kinds) < 4 {
		_, message, err := ws.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		header, _, err := wire.ParseHeader(message)
		if err != nil || header.Stream != 1 {
			t.Fatalf("%v, %v", header, err)
		}
		if kinds = append(kinds, header.Type); header.Type == wire.Pause {
			_ = conn.Close()
		}
	}
	if want := [4]wire.Type{wire.Connect, wire.Pause, wire.Resume, wire.Error}; [4]wire.Type(kinds) != want {
		t.Errorf("the agent was told %v, not %v", kinds, want)
	}
}

func TestLimits(t *testing.T) {
	h := startHub(t, Limits{Limits: session.Limits{Streams: 2}, Sessions: 2})
	h.connect(t, "a", nil)
	for range 2 {
		h.dial(t, "a", "10.0.0.1:80")
	}
	if _, err := h.Dial(t.Context(), "a", "tcp", "10.0.0.1:80"); !errors.As(err, new(*LimitError)) {
		t.Errorf("one stream too many: %v", err)
	}
	if _, err := h.Dial(t.Context(), "a", "tcp", strings.Repeat("x", 300)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("an address that the agent would cut off: %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Dial(canceled, "a", "tcp", "10.0.0.1:80"); !errors.Is(err, context.Canceled) {
		t.Errorf("a dial that was given up: %v", err)
	}
	oldest := h.of("a")[0]
	h.raw(t, "a")
	h.raw(t, "a")
	wait.Until(t, 10*time.Second, "the oldest session has made room", func() bool {
		sessions := h.of("a")
		return len(sessions) == 2 && sessions[0] != oldest
	})
}

// TestNoLeaks: goroutines of ended sessions end, and counters return to zero when their connections are closed.
func TestNoLeaks(t *testing.T) {
	h := startHub(t, Limits{})
	var conns []net.Conn
	for _, key := range []string{"a", "b", "c"} {
		stop := h.connect(t, key, nil)
		for range 20 {
			conn := h.dial(t, key, tunneltest.Listen(t, func(c net.Conn) { _, _ = c.Write(make([]byte, 4<<20)) }))
			_ = conn.SetDeadline(time.Now().Add(time.Hour))
			_, _ = conn.Write([]byte("x"))
			conns = append(conns, conn)
		}
		time.Sleep(50 * time.Millisecond)
		stop()
	}
	wait.Until(t, 10*time.Second, "all sessions are gone", func() bool { return h.count() == 0 })
	wait.Until(t, 10*time.Second, "the manager is at rest", func() bool { h.mu.RLock(); defer h.mu.RUnlock(); return !h.watched })
	for _, conn := range conns {
		_ = conn.Close()
	}
	if streams := testutil.ToFloat64(h.metrics.streams); streams != 0 {
		t.Errorf("%v streams are counted", streams)
	}
	if paused := testutil.ToFloat64(h.metrics.paused); paused != 0 {
		t.Errorf("%v paused streams are counted", paused)
	}
	stacks := make([]byte, 1<<20)
	wait.Until(t, 10*time.Second, "no goroutine of a session is left", func() bool {
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "session.(*Session)")
	})
}

// TestProcessLimit: when all sessions together exceed the limit, the fullest stream of the one that holds most is closed, and no other.
func TestProcessLimit(t *testing.T) {
	h := startHub(t, Limits{Limits: session.Limits{Process: 1 << 20, Pause: 8 << 20}})
	large, small := h.raw(t, "large"), h.raw(t, "small")
	fullest, other, spared := h.dial(t, "large", "10.0.0.1:80"), h.dial(t, "large", "10.0.0.1:80"), h.dial(t, "small", "10.0.0.1:80")
	for range 50 {
		writeFrame(t, large, 1, wire.Data, strings.Repeat("x", 32<<10))
	}
	writeFrame(t, large, 2, wire.Data, "other")
	writeFrame(t, small, 1, wire.Data, "small")
	for conn, want := range map[net.Conn]string{other: "other", spared: "small"} {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Errorf("%q arrives as %q, %v", want, got, err)
		}
	}
	if _, err := io.Copy(io.Discard, fullest); !errors.As(err, new(*LimitError)) {
		t.Errorf("the stream that holds most answers %v", err)
	}
	wait.Until(t, 10*time.Second, "the memory is given back", func() bool { return h.shared.Used() == 0 })
}
