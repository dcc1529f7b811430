package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Listen listens on a unix socket of mode 0600, in a folder that is made with mode 0700 where it is missing. What a process that ended
// left in its place is replaced; where a living one listens the error is ErrLocked. A folder that others may write to, and something in
// the socket's place that is none, are refused. Closing the listener removes the socket.
func (m Machine) Listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := makeFolder(dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkOwnFolder(dir); err != nil {
		return nil, err
	}
	unlock, err := m.Lock(path + ".lock")
	if err != nil {
		return nil, err
	}
	listener, err := listen(path)
	if err != nil {
		unlock()
		return nil, err
	}
	return &lockedListener{Listener: listener, unlock: unlock}, nil
}

func checkOwnFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Perm()&0o022 != 0 || int(stat.Uid) != os.Getuid() && stat.Uid != 0 {
		return fmt.Errorf("the folder %s must belong to root and be writable by nobody else", dir)
	}
	return nil
}

// listen is called with the lock held, so that nobody who locks it too listens there.
func listen(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&os.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there and is no socket", path)
	default:
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("another process listens on %s: %w", path, ErrLocked)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// lockedListener lets go of the lock when it is closed.
type lockedListener struct {
	net.Listener
	unlock func()
}

// Close implements net.Listener.
func (l *lockedListener) Close() error {
	err := l.Listener.Close()
	l.unlock()
	return err
}
