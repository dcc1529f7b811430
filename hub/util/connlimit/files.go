package connlimit

import (
	"math"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// reservedFiles is how many of the files that the hub may have open are not for connections: its own requests need some, and etcd ends the
// process when it cannot open one. Where the limit is low it is a quarter of it.
const reservedFiles = 1024

// reserve is how many files of a limit are not for connections.
func reserve(limit uint64) uint64 { return min(reservedFiles, limit/4) }

// OpenFiles returns how many files this process may have open; the largest number if there is no limit that can be read.
func OpenFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64
	}
	return limit.Cur
}

// LimitsFor returns the Limits for a process that may have a number of files open: at most Defaults, and so many that half of the files for
// connections are left for trusted ones.
func LimitsFor(files uint64) Limits {
	total := min(uint64(Defaults.Total), (files-reserve(files))/2)
	return Limits{Address: int(min(uint64(Defaults.Address), total/2)), Total: int(total)}
}

// ReserveFiles returns a listener that closes connections at once for which no file is left but those that are reserved. full is called for
// each of them with the limit of open files.
func ReserveFiles(listener net.Listener, full func(limit uint64)) net.Listener {
	return &reserving{Listener: listener, limit: OpenFiles(), full: full}
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
	return number < r.limit-reserve(r.limit)
}
