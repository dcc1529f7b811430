package egress

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stallTimeout is how long an end may read nothing of what is written to it, and a server may keep a connection that its client has ended.
const stallTimeout = 2 * time.Minute

// maxReceived is how many bytes a server may send through one connection. The cluster cache reads a list as a whole, and would read one
// that does not end until memory is used up. It is more than the Nodes of the largest clusters. Watches go on through the next connection.
const maxReceived = 512 << 20

var errTooMuch = errors.New("the server has sent too much")

// join copies both ways until both ends are done. A connection that carries nothing, as most of them do most of the time, costs its two
// sockets: no buffer, and not the pipes through which io.Copy has the kernel copy, which are four more open files for as long as it lasts.
// A server that does not read, or does not end a connection after its client has, is given up after the stall time: the hub's clients
// reconnect to a server that does not answer, and each connection would be kept for as long as that server likes. So is one that sends more
// than limit; only that is an error.
func join(client, server net.Conn, stall time.Duration, limit int64) error {
	var sent sync.WaitGroup
	sent.Go(func() {
		_ = copyOne(server, client, stall, math.MaxInt64)
		_ = server.SetReadDeadline(time.Now().Add(stall))
	})
	err := copyOne(client, server, stall, limit)
	tooMuch := errors.Is(err, errTooMuch)
	if tooMuch {
		_ = server.Close()
	}
	sent.Wait()
	if tooMuch {
		return fmt.Errorf("%w: more than %d bytes", err, limit)
	}
	return nil
}

// copyOne passes the end of what it copies on, too.
func copyOne(to, from net.Conn, stall time.Duration, limit int64) error {
	err := copyData(to, from, stall, limit)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return nil
	}
	_ = to.Close()
	return err
}

// buffers are shared by all connections: each has one only from its data's arrival until it is written.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyData copies until the end of the data, or until more than limit bytes have come, which is an error.
func copyData(to, from net.Conn, stall time.Duration, limit int64) error {
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
		n, err := copyNext(to, raw, stall)
		if n == 0 || err != nil {
			return err
		}
		if limit -= int64(n); limit < 0 {
			return errTooMuch
		}
	}
}

// copyNext waits for data and copies it. It returns the number of bytes, 0 at the end of the data.
func copyNext(to net.Conn, from syscall.RawConn, stall time.Duration) (n int, err error) {
	var buffer *[32 << 10]byte
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
		return 0, err
	}
	defer buffers.Put(buffer)
	if failed != nil || n == 0 {
		return 0, failed
	}
	_ = to.SetWriteDeadline(time.Now().Add(stall))
	_, err = to.Write(buffer[:n])
	return n, err
}
