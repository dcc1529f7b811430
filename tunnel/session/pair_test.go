package session

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// pair are both ends of a session.
type pair struct {
	// hub opens streams, agent dials for it.
	hub, agent *Session
	// hubShared and agentShared are what they would share with other sessions.
	hubShared, agentShared *Shared
	// end ends the session and waits until both ends have ended.
	end func()
}

// connect starts a session whose agent has these limits and dials with dial.
func connect(t testing.TB, limits Limits, directional bool, dial Dial) *pair {
	t.Helper()
	return connectTo(t, Limits{}, limits, directional, dial)
}

// connectTo is connect with limits of the hub.
func connectTo(t testing.TB, hubLimits, limits Limits, directional bool, dial Dial) *pair {
	t.Helper()
	p := &pair{hubShared: NewShared(hubLimits, nil), agentShared: NewShared(limits, nil)}
	connected := make(chan *Session)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hijacker := &Hijacker{ResponseWriter: w, Shared: p.hubShared}
		ws, err := (&websocket.Upgrader{}).Upgrade(hijacker, r, nil)
		if err != nil {
			t.Error(err)
			close(connected)
			return
		}
		connected <- New(p.hubShared, hijacker.Socket, ws, Options{Peer: "agent", Directional: directional})
	}))
	defer server.Close()
	dialer := &websocket.Dialer{NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return Bulk(conn), nil
	}}
	ws, response, err := dialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	p.hub = <-connected
	p.agent = New(p.agentShared, NewSocket(ws.NetConn(), p.agentShared), ws,
		Options{Peer: "hub", Client: true, Directional: directional, Dial: dial})
	var serving sync.WaitGroup
	serving.Go(func() { p.hub.Serve() })
	serving.Go(func() { p.agent.Serve() })
	p.end = sync.OnceFunc(func() {
		p.hub.Close(Ended("test", "the test is over"), websocket.CloseGoingAway)
		serving.Wait()
	})
	t.Cleanup(p.end)
	return p
}

// open opens a stream at the hub.
func (p *pair) open(t testing.TB, address string) net.Conn {
	t.Helper()
	conn, err := p.hub.Open(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}
