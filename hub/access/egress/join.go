package egress

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stallTimeout is how long an end may read nothing of what is written to it, and a server may keep a connection that its client has ended.
const stallTimeout = 2 * time.Minute

// join copies both ways until both ends are done. A connection that carries nothing, as most of them do most of the time, costs its two
// sockets: no buffer, and not the pipes through which io.Copy has the kernel copy, which are four more open files for as long as it lasts.
// A server that does not read, or does not end a connection after its client has, is given up after the stall time: the hub's clients
// reconnect to a server that does not answer, and each connection would be kept for as long as that server likes.
func join(client, server net.Conn, stall time.Duration) {
	var sent sync.WaitGroup
	sent.Go(func() {
		copyOne(server, client, stall)
		_ = server.SetReadDeadline(time.Now().Add(stall))
	})
	copyOne(client, server, stall)
	sent.Wait()
}

// copyOne passes the end of what it copies on, too.
func copyOne(to, from net.Conn, stall time.Duration) {
	err := copyData(to, from, stall)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
}

// buffers are shared by all connections: each has one only from its data's arrival until it is written.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func copyData(to, from net.Conn, stall time.Duration) error {
	socket, ok := from.(syscall.Conn)
	if !ok {
		_, err := io.Copy(to, from)
		return err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	for {
		if done, err := copyNext(to, raw, stall); done || err != nil {
			return err
		}
	}
}

// copyNext waits for data and copies it, or reports the end of it.
func copyNext(to net.Conn, from syscall.RawConn, stall time.Duration) (done bool, err error) {
	var buffer *[32 << 10]byte
	var n int
	var failed error
	err = from.Read(func(fd uintptr) bool {
		buffer = buffers.Get().(*[32 << 10]byte)
		for {
			n, failed = unix.Read(int(fd), buffer[:])
			if failed != unix.EINTR {
				break
			}
		}
		if failed == unix.EAGAIN {
			buffers.Put(buffer)
			return false // until there is something to read
		}
		return true
	})
	if err != nil {
		return false, err
	}
	defer buffers.Put(buffer)
	if failed != nil || n == 0 {
		return failed == nil, failed
	}
	_ = to.SetWriteDeadline(time.Now().Add(stall))
	_, err = to.Write(buffer[:n])
	return false, err
}
