package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/fs"
)

// fakeEngine is an Engine with fixed results.
type fakeEngine struct {
	state    engine.State
	attempts []journal.Attempt
	plan     string
	err      error
	retried  int
}

func (f *fakeEngine) State() engine.State                 { return f.state }
func (f *fakeEngine) History() ([]journal.Attempt, error) { return f.attempts, f.err }
func (f *fakeEngine) Plan() []byte                        { return []byte(f.plan) }
func (f *fakeEngine) Retry() error                        { f.retried++; return f.err }

// serve starts a server on a socket of its own and returns the socket's path and what ends it.
func serve(t *testing.T, s *Server) (string, func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "agent.sock")
	listener, err := fs.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return path, stop
}

func TestQuestions(t *testing.T) {
	hub := &fakeEngine{state: engine.State{Source: "hub", Checksum: "abc", Phase: engine.PhaseWaiting, Reason: "hub unreachable"},
		plan: `{ "files":[] }`,
		attempts: []journal.Attempt{{Source: "hub", Checksum: "abc", Number: 1},
			{Source: "hub", Checksum: "abc", Number: 2, Succeeded: true}}}
	local := &fakeEngine{state: engine.State{Phase: engine.PhaseIdle}, err: errors.New("there is nothing to try again")}
	path, stop := serve(t, &Server{Status: Status{Version: "v1", PID: 7}, Engines: func() map[string]Engine {
		return map[string]Engine{"a/b.plan": local, "hub": hub}
	}})
	defer stop()
	client := NewClient(path)

	status, err := client.Status(t.Context())
	want := Status{Version: "v1", PID: 7, Sources: []engine.State{hub.state, {Source: "a/b.plan", Phase: engine.PhaseIdle}}}
	if diff := cmp.Diff(want, status); diff != "" || err != nil {
		t.Error(diff, err)
	}
	// The plan comes byte for byte: its checksum depends on white space.
	if plan, err := client.Plan(t.Context(), "hub"); string(plan) != hub.plan || err != nil {
		t.Errorf("got %q, %v", plan, err)
	}
	if attempts, err := client.History(t.Context(), "hub"); !cmp.Equal(attempts, hub.attempts) || err != nil {
		t.Errorf("got %v, %v", attempts, err)
	}
	if err := client.Retry(t.Context(), "hub"); err != nil || hub.retried != 1 {
		t.Errorf("got %v after %d", err, hub.retried)
	}
	if err := client.Retry(t.Context(), "a/b.plan"); err == nil || err.Error() != "there is nothing to try again" {
		t.Errorf("got %v", err)
	}
	if _, err := client.History(t.Context(), "moon"); err == nil ||
		!strings.Contains(err.Error(), `no plan source "moon": this agent has ["a/b.plan" "hub"]`) {
		t.Errorf("got %v", err)
	}
}

func TestSocketIsPrivate(t *testing.T) {
	path, stop := serve(t, &Server{Engines: func() map[string]Engine { return nil }})
	for name, mode := range map[string]os.FileMode{path: 0o600 | os.ModeSocket, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Lstat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s is %v, %v", name, info.Mode(), err)
		}
	}
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
	if _, err := NewClient(path).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
}

// Whoever gets at the socket in spite of its mode is still asked who he is.
func TestForeignUserIsRefused(t *testing.T) {
	path, stop := serve(t, &Server{Engines: func() map[string]Engine { return nil }, allowed: []uint32{uint32(os.Getuid()) + 1}})
	defer stop()
	if _, err := NewClient(path).Status(t.Context()); err == nil || err.Error() != "permission denied: must be run as root" {
		t.Errorf("got %v", err)
	}
}

func TestSocketOfAnotherAgent(t *testing.T) {
	path, stop := serve(t, &Server{Engines: func() map[string]Engine { return nil }})
	if _, err := fs.Listen(path); !errors.Is(err, fs.ErrLocked) {
		t.Errorf("got %v", err)
	}
	if _, err := NewClient(path).Status(t.Context()); err != nil {
		t.Errorf("the first agent lost its socket: %v", err)
	}
	stop()

	// One who does not know of the lock.
	foreign, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Listen(path); !errors.Is(err, fs.ErrLocked) {
		t.Errorf("got %v", err)
	}
	// One who was killed leaves the socket behind.
	foreign.(*net.UnixListener).SetUnlinkOnClose(false)
	foreign.Close()
	listener, err := fs.Listen(path)
	if err != nil {
		t.Fatalf("a dead socket is not replaced: %v", err)
	}
	listener.Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Listen(path); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("got %v", err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Listen(path); err == nil || !strings.Contains(err.Error(), "writable by nobody else") {
		t.Errorf("got %v", err)
	}
}

// An agent that hangs keeps nobody waiting for ever, and one that stops does not wait for a client that does not read.
func TestStopWithAnOpenConnection(t *testing.T) {
	path, stop := serve(t, &Server{Engines: func() map[string]Engine { return nil }})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /v1/status HTTP/1.1\r\n")); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	stop()
	if took := time.Since(started); took > time.Minute {
		t.Errorf("stopping took %s", took)
	}
}

// An agent that is killed while it responds is one that is not running: whoever follows it waits for the next.
func TestKilledWhileResponding(t *testing.T) {
	for name, sent := range map[string]string{
		"before the response": "",
		"in the body":         "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "agent.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = connection.Read(make([]byte, 1))
				_, _ = connection.Write([]byte(sent))
				connection.Close() // with input unread, as a killed process leaves it: a reset
			}()
			if _, err := NewClient(listener.Addr().String()).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
				t.Errorf("got %v", err)
			}
		})
	}
}
