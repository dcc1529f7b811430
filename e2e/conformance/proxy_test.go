//go:build conformance

package conformance

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// quiet is the log of servers that are meant to fail.
var quiet = log.New(io.Discard, "", 0)

// request is one that the agent made.
type request struct {
	method string
	url    *url.URL
	// secret tells that it held the agent's token.
	secret bool
}

func (r request) isWatch() bool {
	return r.url.Query().Get("watch") == "true" || r.url.Query().Get("watch") == "1"
}

// proxy stands between one agent and the API server, as a hub does. It notes every request and can misbehave.
type proxy struct {
	*httptest.Server
	// away makes the proxy break every connection.
	away atomic.Bool
	// connections counts those that were made, also those that ended before a request.
	connections atomic.Int64

	mu       sync.Mutex
	requests []request
	handle   func(http.ResponseWriter, *http.Request) bool
	change   func(*http.Response) error
}

func newProxy(t testing.TB) *proxy {
	p := &proxy{}
	target, err := url.Parse(api.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// Only whom to trust is taken over: the agent's own token goes through to the API server, which then judges its rights.
	tlsConfig, err := rest.TLSConfigFor(rest.AnonymousClientConfig(api.config))
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      &http.Transport{TLSClientConfig: tlsConfig, DisableCompression: true},
		FlushInterval:  -1,
		ErrorLog:       quiet,
		ModifyResponse: p.modify,
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) }))
	p.Config.ErrorLog = quiet
	p.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			p.connections.Add(1)
		}
	}
	p.EnableHTTP2 = true
	p.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	p.StartTLS()
	return p
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if p.away.Load() {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	copied := *r.URL
	p.requests = append(p.requests, request{r.Method, &copied, r.Header.Get("Authorization") != ""})
	handle := p.handle
	p.mu.Unlock()
	if handle != nil && handle(w, r) {
		return
	}
	next.ServeHTTP(w, r)
}

func (p *proxy) modify(r *http.Response) error {
	p.mu.Lock()
	change := p.change
	p.mu.Unlock()
	if change == nil {
		return nil
	}
	return change(r)
}

// intercept lets f see every request first; it reports whether it has answered.
func (p *proxy) intercept(f func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handle = f
}

// alter lets f see every answer.
func (p *proxy) alter(f func(*http.Response) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = f
}

func (p *proxy) seen() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// sawToken reports whether the agent has sent its token.
func (p *proxy) sawToken() bool {
	return slices.ContainsFunc(p.seen(), func(r request) bool { return r.secret })
}

// leave breaks all connections and accepts no new ones until the hub is back.
func (p *proxy) leave() {
	p.away.Store(true)
	p.CloseClientConnections()
}

func (p *proxy) back() { p.away.Store(false) }

func (p *proxy) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
}

// body reads a request's body and puts it back.
func body(r *http.Request) []byte {
	raw, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return raw
}

// status answers as an API server does that cannot.
func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"`+reason+
		`","message":"made up by a test","code":`+strconv.Itoa(code)+`}`)
}
