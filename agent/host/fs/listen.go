package fs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Listen listens on a unix socket of mode 0600. The directory is created with mode 0700 if it is missing, and must belong to root or the
// agent's user and be writable by nobody else. A socket left by a process that has ended is replaced; if one listens there still, the error
// wraps ErrLocked. Anything else at the path is an error. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	opened, err := openDir(dir, 0o700, false)
	if err != nil {
		return nil, err
	}
	opened.close()
	if opened.stat.Mode&0o022 != 0 || !ownedByRoot(&opened.stat) {
		return nil, fmt.Errorf("directory %s must belong to root and be writable by nobody else", dir)
	}
	unlock, err := OS{}.Lock(path + ".lock")
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

// listen needs the lock, so that no process that respects the lock starts to listen at the same time.
func listen(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&os.ModeSocket == 0:
		return nil, fmt.Errorf("%s exists and is not a socket", path)
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

// lockedListener releases the lock when it is closed.
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
