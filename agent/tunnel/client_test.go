package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rancher/remotedialer"
)

const key = "c-m-test"

// libraryHub is remotedialer's own server, which other hubs use.
type libraryHub struct {
	*remotedialer.Server
	web *httptest.Server
	// connects counts requests; header is that of the last one.
	connects atomic.Int64
	header   atomic.Pointer[http.Header]
	// answer, where it is set, is in place of the library's.
	answer atomic.Pointer[http.HandlerFunc]
	conns  sync.Map
}

func newLibraryHub(t *testing.T) *libraryHub {
	t.Helper()
	h := &libraryHub{Server: remotedialer.New(func(*http.Request) (string, bool, error) { return key, true, nil },
		remotedialer.DefaultErrorWriter)}
	h.web = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.connects.Add(1)
		h.header.Store(&r.Header)
		if answer := h.answer.Load(); answer != nil {
			(*answer)(w, r)
			return
		}
		h.ServeHTTP(w, r)
	}))
	h.web.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateHijacked {
			h.conns.Store(c, nil)
		}
	}
	h.web.StartTLS()
	t.Cleanup(func() {
		h.cut()
		h.web.Close()
	})
	return h
}

// cut ends all connections, as a crash does.
func (h *libraryHub) cut() {
	h.conns.Range(func(c, _ any) bool {
		h.conns.Delete(c)
		_ = c.(net.Conn).Close()
		return true
	})
}

func (h *libraryHub) options(dial Dial) Options {
	tls := h.web.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	tls.NextProtos = nil
	return Options{Agent: "cluster/test", Dial: dial, Log: slog.New(slog.DiscardHandler), Access: func(context.Context) (Access, error) {
		return Access{Server: h.web.URL, Token: "credential", TLS: tls}, nil
	}}
}

// start runs a client for as long as the test runs.
func start(t *testing.T, o Options) *Client {
	t.Helper()
	client := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		client.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("the client does not stop")
		}
	})
	return client
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// echo is a TCP server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, h *libraryHub, network, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := h.Dialer(key)(ctx, network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestRefusedDialEndsOneStreamOnly(t *testing.T) {
	target, other := echo(t), echo(t)
	hub := newLibraryHub(t)
	client := start(t, hub.options(AllowList([]string{target})))
	eventually(t, "a session", func() bool { return hub.HasSession(key) })
	good := dial(t, hub, "tcp", target)
	for _, refused := range []struct{ network, address string }{{"tcp", other}, {"udp", target}, {"unix", "/run/secret.sock"}, {"tcp",
		"169.254.169.254:80"}} {
		bad := dial(t, hub, refused.network, refused.address)
		if _, err := bad.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "is not allowed by this agent") {
			t.Errorf("a dial of %s %s ends with %v", refused.network, refused.address, err)
		}
	}
	roundTrip(t, good, 1<<20)
	// A chunk is counted after it was sent, when the hub may have it already.
	eventually(t, "all that was sent to be counted", func() bool { return client.Status().Sent == 1<<20 })
	status := client.Status()
	if status.Sessions != 1 || status.Lost != 0 || status.Refused != 4 || status.Streams != 1 || status.Received != 1<<20 ||
		status.Sent != 1<<20 {
		t.Errorf("status is %+v", status)
	}
	if agent, token := (*hub.header.Load()).Get(agentHeader), (*hub.header.Load()).Get("Authorization"); agent != "cluster/test" ||
		token != "Bearer credential" {
		t.Errorf("agent is %q, token %q", agent, token)
	}
}

func TestLinkLocalAddressesAreNeverDialed(t *testing.T) {
	for _, address := range []string{"169.254.169.254:80", "[fe80::1%lo]:80", "[::ffff:169.254.169.254]:80"} {
		if _, err := AllowList([]string{address})(t.Context(), "tcp", address); err == nil || !strings.Contains(err.Error(),
			"link-local address") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// roundTrip sends so many bytes and expects them back.
func roundTrip(t *testing.T, conn net.Conn, bytesToSend int) {
	t.Helper()
	want := make([]byte, bytesToSend)
	_, _ = rand.Read(want)
	go func() { _, _ = conn.Write(want) }()
	have := make([]byte, len(want))
	if _, err := io.ReadFull(conn, have); err != nil || !bytes.Equal(have, want) {
		t.Fatalf("the echo differs: %v", err)
	}
}

func TestReconnects(t *testing.T) {
	t.Parallel()
	target := echo(t)
	hub := newLibraryHub(t)
	client := start(t, hub.options(AllowList([]string{target})))
	eventually(t, "a session", func() bool { return client.Status().Sessions == 1 })
	hub.cut()
	eventually(t, "the loss is noticed", func() bool { return client.Status().Lost == 1 })
	if s := client.Status(); s.Sessions == 0 && s.LastError == "" {
		t.Error("there is neither a session nor an error")
	}
	eventually(t, "another session", func() bool { return client.Status().Sessions == 1 && hub.connects.Load() == 2 })
	eventually(t, "a dial works", func() bool {
		conn, err := hub.Dialer(key)(t.Context(), "tcp", target)
		if err != nil {
			return false
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("x"))
		_, err = conn.Read(make([]byte, 1))
		return err == nil
	})
}

func TestUnauthorized(t *testing.T) {
	t.Parallel()
	hub := newLibraryHub(t)
	var first time.Time
	var answer http.HandlerFunc = func(w http.ResponseWriter, _ *http.Request) {
		first = time.Now()
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this credential\nis revoked", http.StatusUnauthorized)
	}
	hub.answer.Store(&answer)
	refused := make(chan string, 10)
	o := hub.options(AllowList(nil))
	o.Unauthorized = func(token string) { refused <- token }
	client := start(t, o)
	eventually(t, "the reason", func() bool {
		return client.Status().LastError == "the hub returned HTTP 401: this credential is revoked"
	})
	if token := <-refused; token != "credential" {
		t.Errorf("%q was refused", token)
	}
	hub.answer.Store(nil)
	eventually(t, "a session", func() bool { return client.Status().Sessions == 1 && client.Status().LastError == "" })
	if patience := time.Since(first); patience < time.Second {
		t.Errorf("reconnected after %s in spite of Retry-After: 1", patience)
	}
}

func TestAccessError(t *testing.T) {
	hub := newLibraryHub(t)
	o := hub.options(AllowList(nil))
	o.Access = func(context.Context) (Access, error) { return Access{}, errors.New("there is no credential yet") }
	client := start(t, o)
	eventually(t, "the reason", func() bool { return client.Status().LastError == "there is no credential yet" })
	if n := hub.connects.Load(); n != 0 {
		t.Errorf("the hub was asked %d times", n)
	}
}

func TestWebsocketURL(t *testing.T) {
	for _, server := range []string{"", "hub.example.com", "ftp://hub.example.com", "https://"} {
		if _, err := websocketURL(server); err == nil {
			t.Errorf("%q is accepted", server)
		}
	}
	if got, err := websocketURL("https://hub.example.com:8443/below/"); err != nil || got != "wss://hub.example.com:8443/below/v3/connect" {
		t.Errorf("%q, %v", got, err)
	}
}

// A stream that the hub pauses and then closes must not leak its writer.
func TestPausedStreamsDoNotLeak(t *testing.T) {
	flood, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	go func() {
		for {
			conn, err := flood.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for chunk := make([]byte, 64<<10); ; {
					if _, err := conn.Write(chunk); err != nil {
						return
					}
				}
			}()
		}
	}()
	hub := newLibraryHub(t)
	client := start(t, hub.options(AllowList([]string{flood.Addr().String()})))
	eventually(t, "a session", func() bool { return hub.HasSession(key) })
	before := runtime.NumGoroutine()
	const streams = 10
	for range streams {
		conn := dial(t, hub, "tcp", flood.Addr().String())
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		sent := client.Status().Sent
		// Nobody reads, so the hub pauses the stream above 2 MiB.
		eventually(t, "the stream stands still", func() bool {
			was := sent
			time.Sleep(50 * time.Millisecond)
			sent = client.Status().Sent
			return sent == was && sent > 0
		})
		_ = conn.Close()
	}
	eventually(t, "nothing is left of the streams", func() bool {
		return client.Status().OpenStreams == 0 &&
			runtime.NumGoroutine() <= before+2
	})
}
