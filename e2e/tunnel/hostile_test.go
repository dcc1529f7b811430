package tunnel

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/hub/access/tunnel"
	"github.com/drover-dev/drover/hub/testenv/tunneltest"
	"github.com/drover-dev/drover/hub/testenv/wait"
	"github.com/drover-dev/drover/tunnel/wire"
)

// The tests of this file play agents that mean harm. They measure the memory of the process, so that they do not run side by side with
// others.

// logLines keeps what a hub logs.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, args)
	}, funcr.Options{})
}

func (l *logLines) with(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			count++
		}
	}
	return count
}

func send(ws *websocket.Conn, stream int64, kind wire.Type, body []byte) error {
	return ws.WriteMessage(websocket.BinaryMessage, message(stream, kind, body))
}

func message(stream int64, kind wire.Type, body []byte) []byte {
	return append(wire.AppendHeader(nil, 1, wire.Header{Stream: stream, Type: kind}), body...)
}

// heapInUse is what the process has on its heap, garbage included.
func heapInUse() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse
}

// peak measures how far the heap grows above what it is now, until stop, which returns MiB. Meanwhile garbage is collected early: how much
// of it there may be otherwise is a matter of what earlier tests have left in use.
func peak() (stop func() uint64) {
	percent := debug.SetGCPercent(20)
	runtime.GC()
	before := heapInUse()
	highest := before
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
			highest = max(highest, heapInUse())
		}
	}()
	return func() uint64 {
		close(ended)
		<-done
		debug.SetGCPercent(percent)
		return (highest - before) >> 20
	}
}

// TestFlood has an agent send 512 MiB on a stream that nobody reads, and that it was asked to pause.
func TestFlood(t *testing.T) {
	var log logLines
	h := ours(t, tunnel.Options{Logger: log.logger(), Limits: patient})
	h.agent(t.Context(), t, "other", nil, nil)
	ws := h.raw(t, "flood")
	conn := h.open(t, "flood", "10.0.0.1:80")
	go func() { _, _ = io.Copy(io.Discard, ws.NetConn()) }()

	grown := peak()
	data := message(1, wire.Data, make([]byte, 32<<10))
	for range (512 << 20) / len(data) {
		if err := ws.WriteMessage(websocket.BinaryMessage, data); err != nil {
			t.Fatalf("the session ended: %v", err)
		}
	}
	if mib := grown(); mib > 32 {
		t.Errorf("the hub took %d MiB", mib)
	} else {
		t.Logf("the hub took %d MiB", mib)
	}
	wait.Until(t, time.Minute, "the stream ended", func() bool {
		_, err := conn.Write([]byte("x"))
		return err != nil && strings.Contains(err.Error(), "wait to be read")
	})
	if lines := log.with("violated the tunnel protocol"); lines != 1 {
		t.Errorf("%d lines about it in the log", lines)
	}
	if !h.connected("flood") || !works(h, "other", tunneltest.Listen(t, tunneltest.Echo), time.Minute) {
		t.Error("a session ended")
	}
}

// TestFloodOnLibrary shows what the library makes of it.
func TestFloodOnLibrary(t *testing.T) {
	h := library(t)
	ws := h.raw(t, "flood")
	h.open(t, "flood", "10.0.0.1:80")
	go func() { _, _ = io.Copy(io.Discard, ws.NetConn()) }()
	runtime.GC()
	before := heapInUse()
	data := message(2, wire.Data, make([]byte, 32<<10))
	for range 4096 {
		if err := ws.WriteMessage(websocket.BinaryMessage, data); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, time.Minute, "the library has taken 128 MiB for 128 MiB, or else this test shows nothing",
		func() bool { return heapInUse() >= before+128<<20 })
}

// TestFloodOfManyStreams fills more streams than the session may hold.
func TestFloodOfManyStreams(t *testing.T) {
	var log logLines
	h := ours(t, tunnel.Options{Logger: log.logger(), Limits: patient})
	ws := h.raw(t, "flood")
	const streams = 128
	for range streams {
		h.open(t, "flood", "10.0.0.1:80")
	}
	go func() { _, _ = io.Copy(io.Discard, ws.NetConn()) }()
	data := make([][]byte, streams)
	for i := range data {
		data[i] = message(int64(i+1), wire.Data, make([]byte, 32<<10))
	}
	grown := peak()
	for i := range 512 * 32 {
		if err := ws.WriteMessage(websocket.BinaryMessage, data[i%streams]); err != nil {
			t.Fatal(err)
		}
	}
	if mib := grown(); mib > 100 {
		t.Errorf("the hub took %d MiB, though a session may have 64", mib)
	}
	if lines := log.with("violated the tunnel protocol"); lines != 1 {
		t.Errorf("%d lines about it in the log", lines)
	}
}

// TestForgery has an agent speak for others, for streams that are not there, and ask the hub to dial into its own network.
func TestForgery(t *testing.T) {
	var log logLines
	h := ours(t, tunnel.Options{Logger: log.logger(), Limits: patient})
	var dialed atomic.Int32
	inside := tunneltest.Listen(t, func(net.Conn) { dialed.Add(1) })
	ws := h.raw(t, "forger")
	var answers atomic.Int32
	go func() {
		for {
			if _, _, err := ws.ReadMessage(); err != nil {
				return
			}
			answers.Add(1)
		}
	}()
	for i := range int64(10000) {
		for _, err := range []error{
			send(ws, 0, wire.AddClient, []byte("victim/1")),
			send(ws, 0, wire.RemoveClient, []byte("forger/1")),
			send(ws, i, wire.Connect, []byte("tcp/"+inside)),
			send(ws, 1000+i, wire.Data, []byte("x")),
			send(ws, i, wire.Pause, nil), send(ws, i, wire.Resume, nil), send(ws, i, wire.Error, []byte("EOF")),
			send(ws, i, 99, []byte("?")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	conn := h.open(t, "forger", "10.0.0.1:80")
	if err := send(ws, 1, wire.Data, []byte("real")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "real" {
		t.Errorf("the session's own stream: %q, %v", got, err)
	}
	if h.connected("victim") || dialed.Load() > 0 {
		t.Errorf("victim connected: %v, dials into the hub's network: %d", h.connected("victim"), dialed.Load())
	}
	if lines := log.with("violated the tunnel protocol"); lines != 1 {
		t.Errorf("%d lines about it in the log", lines)
	}
	if n := answers.Load(); n > 500 {
		t.Errorf("%d answers to messages that should not be", n)
	}
}

// TestGarbage ends the sessions of agents that do not speak the protocol, each with one line, and takes no memory for what they announce.
func TestGarbage(t *testing.T) {
	noise := make([]byte, 4096)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(noise)
	for name, say := range map[string]func(ws *websocket.Conn) error{
		"text":       func(ws *websocket.Conn) error { return ws.WriteMessage(websocket.TextMessage, []byte("hello")) },
		"empty":      func(ws *websocket.Conn) error { return ws.WriteMessage(websocket.BinaryMessage, nil) },
		"cut header": func(ws *websocket.Conn) error { return ws.WriteMessage(websocket.BinaryMessage, []byte{0x80}) },
		"endless number": func(ws *websocket.Conn) error {
			return ws.WriteMessage(websocket.BinaryMessage, []byte(strings.Repeat("\xff", 4096)))
		},
		"uneven list":     func(ws *websocket.Conn) error { return send(ws, 0, wire.SyncConnections, make([]byte, 9)) },
		"no frame":        func(ws *websocket.Conn) error { _, err := ws.NetConn().Write(noise); return err },
		"huge message":    func(ws *websocket.Conn) error { return ignore(send(ws, 0, wire.SyncConnections, make([]byte, 64<<20))) },
		"huge error text": func(ws *websocket.Conn) error { return ignore(send(ws, 1, wire.Error, make([]byte, 64<<20))) },
		"huge frame": func(ws *websocket.Conn) error {
			// A frame that says it has 2^62 bytes.
			_, err := ws.NetConn().Write([]byte{0x82, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log logLines
			h := ours(t, tunnel.Options{Logger: log.logger()})
			ws := h.raw(t, "garbage")
			go func() { _, _ = io.Copy(io.Discard, ws.NetConn()) }()
			if err := say(ws); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, time.Minute, "the session is gone", func() bool { return !h.connected("garbage") })
			wait.Until(t, time.Minute, "there is a line in the log", func() bool { return log.with("Tunnel has ended") == 1 })
			if lines := len(log.lines); lines != 2 {
				t.Errorf("%d lines in the log: %q", lines, log.lines)
			}
		})
	}
}

// ignore is for what the hub does not read to its end.
func ignore(error) error { return nil }

// TestUnreadPings has an agent ping without reading the answers.
func TestUnreadPings(t *testing.T) {
	h := ours(t, quiet)
	ws := h.raw(t, "pings")
	grown := peak()
	for range 300000 {
		if err := ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)); err != nil {
			break
		}
	}
	if mib := grown(); mib > 16 {
		t.Errorf("the hub took %d MiB", mib)
	}
}
