package connlimit

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// reservedFiles is how many of the files that the hub may have open are not for connections: its own requests need some, and etcd ends the
// process when it cannot open one. Where the limit is low it is a quarter of it.
const reservedFiles = 1024

// ReserveFiles returns a listener that closes connections at once for which no file is left but those that are reserved. full is called for
// each of them with the limit of open files. Without a limit that can be read, it closes none.
func ReserveFiles(listener net.Listener, full func(limit uint64)) net.Listener {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return listener
	}
	return &reserving{Listener: listener, limit: limit.Cur, full: full}
}

type reserving struct {
	net.Listener
	limit uint64
	full  func(limit uint64)
}

// Accept implements net.Listener.
func (r *reserving) Accept() (net.Conn, error) {
	for {
		accepted, err := r.Listener.Accept()
		if err != nil || r.free(accepted) {
			return accepted, err
		}
		_ = accepted.Close()
		r.full(r.limit)
	}
}

// free reports whether a connection has none of the reserved files. The system gives out the lowest descriptor that is free, so that its
// number says how many are in use.
func (r *reserving) free(accepted net.Conn) bool {
	file, ok := accepted.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return true
	}
	var number uint64
	if err := raw.Control(func(fd uintptr) { number = uint64(fd) }); err != nil {
		return true
	}
	return number < r.limit-min(reservedFiles, r.limit/4)
}
