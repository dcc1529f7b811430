package connlimit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

// serveHTTP2 starts a server of HTTP/2, and returns its URL and a client with one connection to it.
func serveHTTP2(t *testing.T, handler http.Handler) (*Listener, string, *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(Handler(LimitRequests(handler)))
	server.EnableHTTP2 = true
	listener := Listen(server.Listener, Defaults)
	server.Listener = listener
	server.Config.ConnContext = ConnContext
	server.StartTLS()
	t.Cleanup(server.Close)
	client := server.Client()
	client.Timeout = time.Minute
	get(t, client, server.URL, http.StatusOK)
	return listener, server.URL, client
}

func get(t *testing.T, client *http.Client, url string, want int) http.Header {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != want || response.ProtoMajor != 2 || len(body) > 0 || err != nil {
		t.Errorf("%s: %s %s %q, %v, want %d", url, response.Proto, response.Status, body, err, want)
	}
	return response.Header
}

// TestRequestsOfOneConnection sends more requests over one connection than an untrusted one may have in progress, and again when it is
// trusted.
func TestRequestsOfOneConnection(t *testing.T) {
	const requests = 100
	begun, proceed := make(chan struct{}, requests), make(chan struct{})
	_, url, client := serveHTTP2(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/trusted":
			Trust(r.Context())
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

// TestAnsweredUntilTheLastRequestEnds checks that a connection counts as idle when none of its requests is being answered.
func TestAnsweredUntilTheLastRequestEnds(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	listener, url, client := serveHTTP2(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		for range 2 { // the end of the body counts once
			_, _ = io.ReadAll(r.Body)
		}
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
	for _, body := range []io.Reader{nil, strings.NewReader("body")} {
		go func() {
			defer func() { ended <- struct{}{} }()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/blocked", body)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
		}()
		<-begun
		answered(1)
	}
	proceed <- struct{}{}
	<-ended
	listener.mu.Lock()
	if listener.all.answered.Len() != 1 {
		t.Error("the connection counts as idle while one of two requests is being answered")
	}
	listener.mu.Unlock()
	proceed <- struct{}{}
	<-ended
	answered(0)
}
