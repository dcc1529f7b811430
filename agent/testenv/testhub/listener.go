package testhub

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Listener is a listener in memory. Nothing waits for the kernel on its connections, so that a hub on it and its agent can be in one bubble
// of testing/synctest, where pauses take no time.
type Listener struct {
	accept chan net.Conn
	closed chan struct{}
	close  func()
}

// NewListener makes a listener for NewOn.
func NewListener() *Listener {
	closed := make(chan struct{})
	return &Listener{accept: make(chan net.Conn), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// Dial connects to the listener, whatever the address is.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.accept <- far:
		return near, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("the listener is closed")}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accept:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener. The certificate of a hub is valid for the address.
func (l *Listener) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443}
}
