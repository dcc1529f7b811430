// Package balancer passes TCP connections on to the replicas of a hub, as a Service does. It is for tests and measurements.
package balancer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Backend is a replica as a load balancer sees it.
type Backend struct {
	// Address is where its connections go, host:port.
	Address string
	// Health is the URL that answers 200 as long as new connections may be sent. Its certificate is not verified.
	Health string

	well        atomic.Bool
	connections atomic.Int64
}

// Connections is the number of connections that are open to the replica.
func (b *Backend) Connections() int64 { return b.connections.Load() }

// Balancer passes connections on to backends that are well, each with the same probability, as a Service does. It leaves the connections
// alone that it has already made.
type Balancer struct {
	net.Listener
	backends []*Backend
}

// Start starts a balancer on a free port of the loopback network. It ends with ctx, and its connections with it.
func Start(ctx context.Context, backends ...*Backend) (*Balancer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Balancer{Listener: listener, backends: backends}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	for _, backend := range backends {
		go backend.check(ctx)
	}
	go b.accept(ctx)
	return b, nil
}

// check looks every 250 ms, so that nobody need wait for what is not his subject.
func (b *Backend) check(ctx context.Context) {
	client := &http.Client{Timeout: 500 * time.Millisecond, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // health only
	}}
	for ctx.Err() == nil {
		response, err := client.Get(b.Health)
		b.well.Store(err == nil && response.StatusCode == http.StatusOK)
		if err == nil {
			_ = response.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (b *Balancer) accept(ctx context.Context) {
	for {
		conn, err := b.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // such as too many open files: some are closed soon
			continue
		}
		go b.serve(ctx, conn)
	}
}

// copied is how many bytes are passed on at once.
const copied = 8 << 10

func (b *Balancer) serve(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }()
	backend, far := b.dial()
	if far == nil {
		return
	}
	defer func() {
		_ = far.Close()
		backend.connections.Add(-1)
	}()
	defer context.AfterFunc(ctx, func() { _ = near.Close(); _ = far.Close() })()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			// The kernel would copy through a pipe for each direction, which is four more open files.
			_, _ = io.CopyBuffer(struct{ io.Writer }{pair[1]}, struct{ io.Reader }{pair[0]}, make([]byte, copied))
			_ = pair[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// dial connects to a backend, whose connection it counts.
func (b *Balancer) dial() (*Backend, net.Conn) {
	for _, i := range rand.Perm(len(b.backends)) {
		backend := b.backends[i]
		if !backend.well.Load() {
			continue
		}
		if conn, err := net.DialTimeout("tcp", backend.Address, time.Second); err == nil {
			backend.connections.Add(1)
			return backend, conn
		}
	}
	return nil, nil
}
