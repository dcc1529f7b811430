package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/testenv/testhub"
)

// swallower is a relay between agent and hub that can stop to pass anything on, without closing anything: what a firewall does that has
// forgotten a connection.
type swallower struct {
	t         *testing.T
	target    *testhub.Listener
	mu        sync.Mutex
	forgotten []*atomic.Bool // one for each connection
}

// dial connects through the relay.
func (s *swallower) dial(ctx context.Context, network, address string) (net.Conn, error) {
	far, err := s.target.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn, near := net.Pipe()
	s.t.Cleanup(func() { near.Close(); far.Close() })
	forgotten := &atomic.Bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = append(s.forgotten, forgotten)
	go pass(near, far, forgotten)
	go pass(far, near, forgotten)
	return conn, nil
}

// forget swallows what goes over the connections of this moment. New ones work.
func (s *swallower) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, forgotten := range s.forgotten {
		forgotten.Store(true)
	}
}

func pass(from, to net.Conn, forgotten *atomic.Bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			if !forgotten.Load() {
				to.Close()
			}
			return
		}
		if forgotten.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// TestHalfOpenConnection has a connection die without a word, under HTTP/2, which asks whether the other side is still there, and under
// HTTP/1.1, where bookmarks that do not come tell.
func TestHalfOpenConnection(t *testing.T) {
	for _, test := range []struct {
		name         string
		http2        bool
		watchSilence time.Duration
	}{{"HTTP/2", true, time.Hour}, {"HTTP/1.1", false, maxWatchSilence}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, relay := testhub.NewOn(t, testhub.NewListener()), &swallower{t: t, target: testhub.NewListener()}
				server := httptest.NewUnstartedServer(bookmarking(h))
				_ = server.Listener.Close()
				server.Listener, server.EnableHTTP2 = relay.target, test.http2
				server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
				server.StartTLS()
				t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
				s, err := New(optionsInMemory(t, h, relay.dial))
				if err != nil {
					t.Fatal(err)
				}
				s.watchSilence = test.watchSilence
				run(t, s)
				h.Deliver("1")
				next(t, s, "1")
				time.Sleep(2 * bookmarkInterval)
				relay.forget()
				h.Deliver("2")
				began := time.Now()
				next(t, s, "2")
				if took := time.Since(began); took > 3*time.Minute {
					t.Errorf("noticed after %s", took)
				} else {
					t.Logf("noticed after %s", took)
				}
			})
		})
	}
}

// bookmarkInterval is that of a real hub.
const bookmarkInterval = time.Minute

// bookmarking sends bookmarks into watches.
func bookmarking(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			next.ServeHTTP(w, r)
			return
		}
		locked := &lockedWriter{ResponseWriter: w}
		done := make(chan struct{})
		var sending sync.WaitGroup
		sending.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(bookmarkInterval):
					locked.bookmark()
				}
			}
		})
		defer sending.Wait()
		defer close(done)
		next.ServeHTTP(locked, r)
	})
}

type lockedWriter struct {
	http.ResponseWriter
	mu    sync.Mutex
	begun bool
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	return w.ResponseWriter.Write(p)
}

func (w *lockedWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	w.ResponseWriter.(http.Flusher).Flush()
}

func (w *lockedWriter) bookmark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		_ = json.NewEncoder(w.ResponseWriter).Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "10"}}})
		w.ResponseWriter.(http.Flusher).Flush()
	}
}

// TestHubIsBusy has the hub ask for patience on what is asked first: nothing else is asked until then, and the plan comes after.
func TestHubIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var first time.Time
		early := 0
		h, s := newSourceInMemory(t, func(w http.ResponseWriter, _ *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if first.IsZero() {
				first = time.Now()
				w.Header().Set("Retry-After", "60")
				http.Error(w, "starting", http.StatusServiceUnavailable)
				return true
			}
			if time.Since(first) < time.Minute {
				early++
			}
			return false
		})
		h.Deliver("1")
		synctest.Wait()
		if reason, _ := s.Unreachable(); reason == "" {
			t.Error("no reason after the first answer")
		}
		var busy *busyError
		if _, err := s.Get(t.Context()); !errors.As(err, &busy) {
			t.Errorf("a read beside it: %v", err)
		}
		next(t, s, "1")
		mu.Lock()
		defer mu.Unlock()
		if early != 0 {
			t.Errorf("asked %d times before it was time", early)
		}
	})
}

// TestHugeAnswers shows that S10 cannot happen with what a hub, or somebody in its place, sends.
func TestHugeAnswers(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]func(*http.Request) bool{
		"list": func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/secrets") && !r.URL.Query().Has("watch")
		},
		"get":   func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/plan") },
		"watch": func(r *http.Request) bool { return r.URL.Query().Has("watch") },
	} {
		t.Run(name, func(t *testing.T) {
			h := testhub.New(t)
			h.Deliver("1")
			var sent atomic.Int64
			h.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				if !is(r) {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"Secret","type":"MODIFIED","x":"`)
				chunk := []byte(strings.Repeat("x", 1<<20))
				for range 64 {
					n, err := w.Write(chunk)
					if sent.Add(int64(n)); err != nil {
						break
					}
				}
				return true
			})
			s := newSource(t, h)
			if name == "get" {
				if _, err := s.Get(t.Context()); !errors.Is(err, errTooLarge) {
					t.Errorf("got %v", err)
				}
			} else {
				eventually(t, "the reason", func() bool {
					reason, _ := s.Unreachable()
					return strings.Contains(reason, "larger than any Secret") || strings.Contains(reason, "too large")
				})
			}
			if got := sent.Load(); got > 40<<20 {
				t.Errorf("took %d bytes", got)
			}
			h.SetFault(nil)
			h.Deliver("2")
			next(t, s, "2")
		})
	}
}

// TestRedirects: the token goes nowhere but to the hub.
func TestRedirects(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s is asked elsewhere, with the token: %v", r.URL, r.Header.Get("Authorization") != "")
	}))
	defer elsewhere.Close()
	h := testhub.New(t)
	h.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	})
	h.Deliver("1")
	s := newSource(t, h)
	if _, err := s.Get(t.Context()); err == nil {
		t.Error("a redirect is an answer")
	}
	eventually(t, "the reason", func() bool { reason, _ := s.Unreachable(); return reason != "" })
	h.SetFault(nil)
	next(t, s, "1")
}

// TestLongestWatch: a hub that sends bookmarks may let a watch go on, since missing ones tell that the connection is dead.
func TestLongestWatch(t *testing.T) {
	for bookmarks, want := range map[bool]string{false: "", true: "3600"} {
		h, asked := testhub.New(t), make(chan string, 1)
		h.SetFault(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") != "" {
				select {
				case asked <- r.Header.Get(longestWatchHeader):
				default:
				}
			}
			return false
		})
		s, err := New(options(h.Connection(t, t.TempDir(), "token")))
		if err != nil {
			t.Fatal(err)
		}
		s.bookmarks = bookmarks
		start(t, s)
		if got := <-asked; got != want {
			t.Errorf("after bookmarks (%t) a watch may go on for %q seconds, want %q", bookmarks, got, want)
		}
	}
}
