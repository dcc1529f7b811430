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

// pipes is a listener without an address: what connects to it is a pair of sockets that nobody else can get hold of.
type pipes struct {
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipes() *pipes {
	return &pipes{incoming: make(chan net.Conn), closed: make(chan struct{})}
}

// dial makes a pair and hands the far end to Accept.
func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	select {
	case p.incoming <- far:
		return near, nil
	case <-p.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, near.Close(), far.Close())
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.incoming:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: Address, Net: Network} }

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

// connOf takes over a descriptor.
func connOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), Address)
	defer file.Close() // the connection has a copy
	return net.FileConn(file)
}
