//go:build e2e

package replicas

import (
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// backend is a replica as a load balancer sees it.
type backend struct {
	address string
	// health is the URL that answers 200 as long as new connections may be sent.
	health string
	well   atomic.Bool
}

// balancer passes connections on to backends that are well, each with the same probability, as a Service does. It leaves the connections
// alone that it has already made.
type balancer struct {
	net.Listener
	backends []*backend
}

func newBalancer(ctx context.Context, t *testing.T, backends ...*backend) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: listener, backends: backends}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	for _, backend := range backends {
		go backend.check(ctx)
	}
	go b.accept(ctx)
	return b
}

// check looks every 250 ms, so that the test need not wait for what is not its subject.
func (b *backend) check(ctx context.Context) {
	client := &http.Client{Timeout: 500 * time.Millisecond, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // health only
	}}
	for ctx.Err() == nil {
		response, err := client.Get(b.health)
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

func (b *balancer) accept(ctx context.Context) {
	for {
		conn, err := b.Accept()
		if err != nil {
			return
		}
		go b.serve(ctx, conn)
	}
}

func (b *balancer) serve(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }()
	far := b.dial()
	if far == nil {
		return
	}
	defer func() { _ = far.Close() }()
	defer context.AfterFunc(ctx, func() { _ = near.Close(); _ = far.Close() })()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(pair[1], pair[0])
			_ = pair[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

func (b *balancer) dial() net.Conn {
	for _, i := range rand.Perm(len(b.backends)) {
		backend := b.backends[i]
		if !backend.well.Load() {
			continue
		}
		if conn, err := net.DialTimeout("tcp", backend.address, time.Second); err == nil {
			return conn
		}
	}
	return nil
}
