package apiproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/drover-dev/drover/hub/access/tunnel"
)

// lostAgents are agents whose sessions end as soon as a request is on its way to them.
type lostAgents struct{ session atomic.Int64 }

func (a *lostAgents) Route(key string) (tunnel.Route, bool) { return a.RouteOf(key, a.session.Add(1)) }

func (a *lostAgents) RouteOf(key string, session int64) (tunnel.Route, bool) {
	return tunnel.Route{Agent: tunnel.Agent{Key: key}, Session: session}, true
}

func (a *lostAgents) DialSession(_ context.Context, key string, _ int64, _, _ string) (net.Conn, error) {
	return nil, &tunnel.NoSessionError{Key: key}
}

// TestForgetsSessions checks that sessions which have ended are not remembered forever.
func TestForgetsSessions(t *testing.T) {
	const most, sessions = 10, 1005
	u := newUpstream(&lostAgents{}, nil)
	own := u.own.(*renewedTransport)
	own.most = most
	c := &call{cluster: connectedCluster, url: &url.URL{Path: "/api"}, kind: ordinary, downstream: &user.DefaultInfo{Name: "jane"}}
	for range sessions {
		r, err := http.NewRequestWithContext(withCall(t.Context(), c), http.MethodGet, "http://hub/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := u.RoundTrip(r)
		if !errors.As(err, new(*tunnel.NoSessionError)) {
			if err == nil {
				_ = response.Body.Close()
			}
			t.Fatalf("a request through a session that has ended: %v", err)
		}
	}
	// That of net/http has no other way to be seen.
	if hosts := reflect.ValueOf(own.get()).Elem().FieldByName("idleConnWait").Len(); hosts > most {
		t.Errorf("%d of %d sessions are remembered, want %d at most", hosts, sessions, most)
	}
}

// TestRenewedTransport checks that requests in progress are answered when their transport is replaced, and that their connections are
// closed afterwards.
func TestRenewedTransport(t *testing.T) {
	begun, answer, closed := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-answer
		}
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	transport := &renewedTransport{most: 2}
	transport.create = func() *http.Transport {
		return &http.Transport{DialContext: transport.counted((&net.Dialer{}).DialContext)}
	}
	get := func(path string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			return err
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(response.Body)
		if string(body) != path {
			err = errors.Join(err, errors.New("the answer is "+string(body)))
		}
		return errors.Join(err, response.Body.Close())
	}
	slow := make(chan error, 1)
	go func() { slow <- get("/slow") }()
	<-begun
	first := transport.get()
	if err := get("/second"); err != nil {
		t.Error(err)
	}
	if transport.get() == first {
		t.Error("the transport is not replaced after two connections")
	}
	close(answer)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	// Without an end of the idle connections of the first transport, this waits until the test times out.
	<-closed
	<-closed
}
