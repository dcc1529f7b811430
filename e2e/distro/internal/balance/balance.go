// Package balance passes TCP connections on to the first of several addresses that answers.
package balance

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// Balancer passes connections on. Its addresses may change while it runs.
type Balancer struct {
	log      *slog.Logger
	listener net.Listener

	mu        sync.Mutex
	addresses []string
	open      map[net.Conn]string
}

// Listen starts to accept connections at address, until ctx ends.
func Listen(ctx context.Context, log *slog.Logger, address string, to []string) (*Balancer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	b := &Balancer{log: log, listener: l, addresses: to, open: map[net.Conn]string{}}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go b.accept(ctx)
	return b, nil
}

// Set replaces the addresses. Connections to an address that is no longer among them are closed, so that clients turn to
// one that is.
func (b *Balancer) Set(to []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(to) == 0 || slices.Equal(b.addresses, to) {
		return
	}
	b.log.Info("Addresses changed", "at", b.listener.Addr().String(), "addresses", to)
	b.addresses = to
	for conn, address := range b.open {
		if !slices.Contains(to, address) {
			_ = conn.Close()
		}
	}
}

// Addresses are the current ones.
func (b *Balancer) Addresses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.addresses)
}

// Follow sets the addresses to what list says, at once and then every interval, until ctx ends.
func (b *Balancer) Follow(ctx context.Context, every time.Duration, list func(context.Context) ([]string, error)) {
	for {
		to, err := list(ctx)
		if err != nil && ctx.Err() == nil {
			b.log.Warn("Cannot learn the addresses to balance over", "error", err)
		}
		slices.Sort(to)
		b.Set(to)
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

func (b *Balancer) accept(ctx context.Context) {
	for {
		conn, err := b.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go b.serve(ctx, conn)
	}
}

func (b *Balancer) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	for _, address := range b.Addresses() {
		to, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			b.demote(address)
			continue
		}
		b.mu.Lock()
		b.open[to] = address
		b.mu.Unlock()
		go func() { _, _ = io.Copy(to, conn); closeWrite(to) }()
		_, _ = io.Copy(conn, to)
		b.mu.Lock()
		delete(b.open, to)
		b.mu.Unlock()
		_ = to.Close()
		return
	}
}

// demote tries an address that did not answer last.
func (b *Balancer) demote(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.addresses, address); i >= 0 && len(b.addresses) > 1 {
		b.addresses = append(slices.Delete(slices.Clone(b.addresses), i, i+1), address)
	}
}

func closeWrite(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
}
