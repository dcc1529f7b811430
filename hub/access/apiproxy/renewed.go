package apiproxy

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// maxDials is after how many new connections another transport takes the place of one. What net/http remembers of so many sessions takes
// some 5 MiB, and a new connection through a tunnel costs its agent one message.
const maxDials = 10_000

// dialFunc dials as http.Transport.DialContext and DialTLSContext do.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// renewedTransport is an http.Transport that another one replaces after a number of new connections. net/http remembers a host for which a
// request has opened a connection until a connection to that host becomes idle. Here the host is a session, and those of a session that has
// ended never do: of each agent that was lost while it was asked something, an entry would stay for as long as the hub runs.
type renewedTransport struct {
	// create returns a transport whose dialFunc is from counted. most is how many connections one opens.
	create func() *http.Transport
	most   int

	mu sync.Mutex
	// current is nil until the next request; dials are its connections.
	current *http.Transport
	dials   int
}

// RoundTrip implements http.RoundTripper.
func (t *renewedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.get().RoundTrip(r)
}

func (t *renewedTransport) get() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == nil {
		t.current, t.dials = t.create(), 0
	}
	return t.current
}

// counted returns a dialFunc that counts its calls.
func (t *renewedTransport) counted(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		t.dialed()
		return dial(ctx, network, address)
	}
}

// dialed counts a connection. The transport that is replaced ends with the last of its requests, which go on: a connection is closed when
// it becomes idle.
func (t *renewedTransport) dialed() {
	t.mu.Lock()
	var replaced *http.Transport
	if t.dials++; t.dials >= t.most {
		replaced, t.current = t.current, nil
	}
	t.mu.Unlock()
	if replaced != nil {
		replaced.CloseIdleConnections()
	}
}
