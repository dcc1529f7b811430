package remote

import (
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
	"time"

	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/agent/testenv/trusttest"
)

// swallower is a relay between agent and hub that can stop to pass anything on, without closing anything: what a firewall does that has
// forgotten a connection.
type swallower struct {
	listener  net.Listener
	target    string
	mu        sync.Mutex
	forgotten []*atomic.Bool // one for each connection
}

func newSwallower(t *testing.T, target string) *swallower {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &swallower{listener: listener, target: target}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			t.Cleanup(func() { near.Close(); far.Close() })
			forgotten := &atomic.Bool{}
			s.mu.Lock()
			s.forgotten = append(s.forgotten, forgotten)
			s.mu.Unlock()
			go pass(near, far, forgotten)
			go pass(far, near, forgotten)
		}
	}()
	return s
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
	// In the product these are 30 s and 15 s.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	for _, http2 := range []bool{true, false} {
		t.Run(map[bool]string{true: "HTTP/2", false: "HTTP/1.1"}[http2], func(t *testing.T) {
			ca := trusttest.NewCA(t, "ca")
			f := newTLSHub(t, ca)
			server := httptest.NewUnstartedServer(bookmarking(f))
			server.EnableHTTP2 = http2
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			server.StartTLS()
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			relay := newSwallower(t, server.Listener.Addr().String())
			info := f.info("token", ca.PEM())
			info.KubeConfig = strings.ReplaceAll(kubeconfigOf(t, f, server), server.URL, "https://"+relay.listener.Addr().String())
			s, err := New(options(newMachine(t, info).file))
			if err != nil {
				t.Fatal(err)
			}
			if s.watchSilence = 2 * time.Second; http2 {
				s.watchSilence = time.Hour
			}
			start(t, s)
			f.Deliver("1")
			next(t, s, "1")
			time.Sleep(300 * time.Millisecond) // a bookmark
			relay.forget()
			f.Deliver("2")
			began := time.Now()
			next(t, s, "2")
			t.Logf("noticed after %s", time.Since(began))
		})
	}
}

// bookmarking sends bookmarks into watches, more often than a real hub.
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
				case <-time.After(100 * time.Millisecond):
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

// kubeconfigOf is for another server in front of the same hub.
func kubeconfigOf(t *testing.T, f *tlsHub, server *httptest.Server) string {
	t.Helper()
	info := f.info("token", pemOf(server))
	return strings.ReplaceAll(info.KubeConfig, f.server.URL, server.URL)
}

// TestHubIsBusy has the hub ask for patience on what is asked first: nothing else is asked until then, and the plan comes after.
func TestHubIsBusy(t *testing.T) {
	t.Parallel()
	h := testhub.New(t)
	var first atomic.Int64
	var early atomic.Int64
	h.SetFault(func(w http.ResponseWriter, _ *http.Request) bool {
		now := time.Now().UnixMilli()
		if first.CompareAndSwap(0, now) {
			w.Header().Set("Retry-After", "6")
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return true
		}
		if now-first.Load() < 5950 {
			early.Add(1)
		}
		return false
	})
	h.Deliver("1")
	s := newSource(t, h)
	eventually(t, "the first answer", func() bool { reason, _ := s.Unreachable(); return reason != "" })
	var busy *busyError
	if _, err := s.Get(t.Context()); !errors.As(err, &busy) {
		t.Errorf("a read beside it: %v", err)
	}
	next(t, s, "1")
	if early.Load() != 0 {
		t.Errorf("asked %d times before it was time", early.Load())
	}
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
