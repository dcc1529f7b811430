package connlimit

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

// serveHTTP2 starts a server of HTTP/2, and returns its URL and a client with one connection to it. The server may send it one byte of an
// answer before it is read.
func serveHTTP2(t *testing.T, limits Limits, handler http.Handler) (*Listener, string, *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(Handler(LimitRequests(handler)))
	server.EnableHTTP2 = true
	listener := Listen(server.Listener, limits)
	server.Listener = listener
	server.Config.ConnContext = ConnContext
	server.StartTLS()
	t.Cleanup(server.Close)
	client := server.Client()
	client.Timeout = time.Minute
	client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 1}
	get(t, client, server.URL, http.StatusOK)
	wait.Until(t, time.Minute, "the end of the first request", func() bool {
		listener.mu.Lock()
		defer listener.mu.Unlock()
		return listener.all.first().requests == 0
	})
	return listener, server.URL, client
}

func get(t *testing.T, client *http.Client, url string, want int) http.Header {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	return do(t, client, r, want)
}

func do(t *testing.T, client *http.Client, r *http.Request, want int) http.Header {
	t.Helper()
	response, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != want || response.ProtoMajor != 2 || len(body) > 0 || err != nil {
		t.Errorf("%s: %s %s %q, %v, want %d", r.URL, response.Proto, response.Status, body, err, want)
	}
	return response.Header
}

// TestRequestsOfOneConnection sends more requests over one connection than an untrusted one may have in progress, and again when it is
// trusted.
func TestRequestsOfOneConnection(t *testing.T) {
	const requests = 100
	begun, proceed := make(chan struct{}, requests), make(chan struct{})
	_, url, client := serveHTTP2(t, Defaults, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/trusted":
			Trust(r.Context(), "", 0)
		case "/blocked":
			begun <- struct{}{}
			<-proceed
		}
	}))
	var all, refused sync.WaitGroup
	for range maxRequests {
		all.Go(func() { get(t, client, url+"/blocked", http.StatusOK) })
		<-begun
	}
	for range requests - maxRequests {
		refused.Go(func() {
			if header := get(t, client, url+"/blocked", http.StatusTooManyRequests); header.Get("Retry-After") == "" {
				t.Error("a refusal does not say when to retry")
			}
		})
	}
	refused.Wait()
	if len(begun) > 0 {
		t.Errorf("%d requests run, want %d", maxRequests+len(begun), maxRequests)
	}
	proceed <- struct{}{}
	wait.Until(t, time.Minute, "a place for a request that is trusted", func() bool {
		response, err := client.Get(url + "/trusted")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	for range requests {
		all.Go(func() { get(t, client, url+"/blocked", http.StatusOK) })
		<-begun
	}
	close(proceed)
	all.Wait()
}

// TestAnsweredUntilTheLastRequestEnds: a connection counts as one that is waited for when the hub works on none of its requests.
func TestAnsweredUntilTheLastRequestEnds(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	listener, url, client := serveHTTP2(t, Defaults, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		defer Answering(r.Context())()
		begun <- struct{}{}
		<-proceed
	}))
	answered := func(want int) {
		t.Helper()
		wait.Until(t, time.Minute, "the requests to be counted", func() bool {
			listener.mu.Lock()
			defer listener.mu.Unlock()
			return listener.all.answered.Len() == want && listener.all.waiting.Len() == 1-want
		})
	}
	answered(0)
	ended := make(chan struct{}, 2)
	for range 2 {
		go func() {
			get(t, client, url+"/blocked", http.StatusOK)
			ended <- struct{}{}
		}()
		<-begun
		answered(1)
	}
	proceed <- struct{}{}
	<-ended
	listener.mu.Lock()
	if listener.all.answered.Len() != 1 {
		t.Error("the connection counts as one that is waited for while the hub works for one of two requests")
	}
	listener.mu.Unlock()
	proceed <- struct{}{}
	<-ended
	answered(0)
}

// unread sends a request whose answer is not read until the test ends. The client may only be sent one byte of it.
func unread(t *testing.T, client *http.Client, url string) (code int) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.StatusCode
}

// answers has answers so small that net/http would write them when it has returned.
var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/unread" {
		_, _ = w.Write(make([]byte, 100))
	}
})

// TestUnreadAnswers checks that a request is in progress until its answer is sent, for which the client must read it.
func TestUnreadAnswers(t *testing.T) {
	listener, url, client := serveHTTP2(t, Defaults, answers)
	for range maxRequests {
		if code := unread(t, client, url+"/unread"); code != http.StatusOK {
			t.Fatalf("one of %d requests: %d", maxRequests, code)
		}
	}
	if code := unread(t, client, url+"/unread"); code != http.StatusTooManyRequests {
		t.Errorf("beyond %d requests whose answers are not read: %d", maxRequests, code)
	}
	listener.mu.Lock()
	defer listener.mu.Unlock()
	if listener.all.extra < maxRequests-1 {
		t.Errorf("%d requests beyond the first one are counted", listener.all.extra)
	}
}

// TestTooManyUnreadAnswers checks that a connection is closed that has several requests in progress while all together have too many.
func TestTooManyUnreadAnswers(t *testing.T) {
	listener, url, client := serveHTTP2(t, Limits{Address: maxRefused - 1, Total: 100}, answers)
	for range maxRefused {
		if code := unread(t, client, url+"/unread"); code != http.StatusOK {
			t.Fatalf("one of %d requests: %d", maxRefused, code)
		}
	}
	if response, err := client.Get(url); err == nil {
		_ = response.Body.Close()
		t.Errorf("the request after these is answered: %s", response.Status)
	}
	wait.Until(t, time.Minute, "no untrusted connections", func() bool { return listener.untrusted() == 0 })
	get(t, client, url, http.StatusOK)
	listener.mu.Lock()
	defer listener.mu.Unlock()
	if len(listener.addresses) != 1 || listener.all.extra != 0 {
		t.Errorf("%d addresses, %d requests are counted after a connection was closed", len(listener.addresses), listener.all.extra)
	}
}

// TestRequestsOfAll checks how requests beyond the first one of each connection are counted for an address and for all.
func TestRequestsOfAll(t *testing.T) {
	l := Listen(nil, Limits{Address: 3, Total: 4})
	open := func(address string) *conn {
		c := &conn{listener: l, address: address}
		l.add(c)
		return c
	}
	step := func(c *conn, want decision, extra int) {
		t.Helper()
		if got := l.begin(c); got != want || l.all.extra != extra {
			t.Errorf("decision %d with %d requests counted, want %d and %d", got, l.all.extra, want, extra)
		}
	}
	a, b, other := open("a"), open("a"), open("b")
	step(a, allow, 0)
	step(a, allow, 1)
	step(a, allow, 2)
	step(a, allow, 3)
	step(a, hangUp, 3) // the address has too many
	step(b, allow, 3)
	step(b, refuse, 4)
	step(other, allow, 4)
	step(other, refuse, 5) // all have too many
	l.end(other)
	l.trust(a, "", 0)
	step(a, allow, 1)
	step(other, allow, 2)
	step(b, allow, 3)
	l.end(a)
	for range 3 {
		l.end(b)
	}
	if extra := l.addresses["a"].extra; extra != 0 || l.all.extra != 1 {
		t.Errorf("%d requests of an address count after the last one, %d of all", extra, l.all.extra)
	}
	l.mu.Lock()
	l.drop(other)
	l.mu.Unlock()
	if l.end(other); l.all.extra != 0 {
		t.Errorf("%d requests count after the connection was closed", l.all.extra)
	}
}

// TestLargeCookies checks that untrusted clients cannot have long cookies, of which each takes its sender a byte.
func TestLargeCookies(t *testing.T) {
	_, url, client := serveHTTP2(t, Defaults, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/trusted" {
			Trust(r.Context(), "", 0)
		}
	}))
	for _, test := range []struct {
		path   string
		length int
		want   int
	}{
		{"/", maxCookie, http.StatusOK},
		{"/", maxCookie + 1, http.StatusRequestHeaderFieldsTooLarge},
		{"/trusted", maxCookie, http.StatusOK},
		{"/", maxCookie + 1, http.StatusOK},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", strings.Repeat("a=b; ", test.length/5)+strings.Repeat("x", test.length%5))
		do(t, client, r, test.want)
	}
}

// TestBodyOfGet checks that the body of a GET is discarded, which would stay in memory until the request has ended.
func TestBodyOfGet(t *testing.T) {
	_, url, client := serveHTTP2(t, Defaults, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		discarded := r.Method == http.MethodGet
		if body, err := io.ReadAll(r.Body); err != nil || (r.Body == http.NoBody) != discarded || (len(body) == 0) != discarded {
			t.Errorf("%s: the handler sees the body %q, %v", r.Method, body, err)
		}
	}))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		do(t, client, r, http.StatusOK)
	}
}

// TestTrustedConnections checks that the oldest trusted connection of a key is closed where there are too many, and of no other key.
func TestTrustedConnections(t *testing.T) {
	handler := Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Trust(r.Context(), r.URL.Query().Get("key"), 2) }))
	listener, _, _ := serve(t, Limits{Address: 10, Total: 10}, handler)
	counted := func(want string) {
		t.Helper()
		wait.Until(t, time.Minute, "connections by key: "+want, func() bool {
			listener.mu.Lock()
			defer listener.mu.Unlock()
			got := map[string]int{}
			for key, conns := range listener.trusted {
				got[key] = conns.Len()
			}
			return fmt.Sprint(got) == want
		})
	}
	connect := func(key string) net.Conn {
		t.Helper()
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		ask(t, conn, key)
		return conn
	}
	first, other := connect("machine"), connect("other")
	ask(t, first, "other") // counts for its first key
	second := connect("machine")
	counted("map[machine:2 other:1]")
	third := connect("machine")
	closed(t, first)
	counted("map[machine:2 other:1]")
	for range 3 {
		ask(t, connect(""), "")
	}
	for _, conn := range []net.Conn{second, third, other} {
		ask(t, conn, "machine")
	}
	_ = other.Close()
	counted("map[machine:2]")
	_ = second.Close()
	_ = third.Close()
	counted("map[]")
}

// ask sends a request on a connection of HTTP/1 and reads the answer.
func ask(t *testing.T, conn net.Conn, key string) {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET /?key=%s HTTP/1.1\r\nHost: hub\r\n\r\n", key); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
}
