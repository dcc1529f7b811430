package clusteragent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// pipeListener is a net.Listener without an address: dial connects to it with a pair of sockets that no other process can use.
type pipeListener struct {
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{incoming: make(chan net.Conn), closed: make(chan struct{})}
}

// dial creates a pair of sockets and passes the far end to Accept.
func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	near, far, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("creating a pair of sockets: %w", err)
	}
	select {
	case l.incoming <- far:
		return near, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, near.Close(), far.Close())
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.incoming:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: Address, Net: Network} }

func socketPair() (near, far net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	near, err = connOf(fds[0])
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1]))
	}
	far, err = connOf(fds[1])
	if err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	return near, far, nil
}

// connOf returns a connection that owns the descriptor.
func connOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), Address)
	defer file.Close() // the connection has a copy
	return net.FileConn(file)
}
