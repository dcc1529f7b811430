package embedded

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	// maxSocketPath is what the kernel allows for the path of a unix socket (108 bytes with the final zero).
	maxSocketPath = 107
	// etcdSocket is the name of etcd's socket in etcd's directory.
	etcdSocket = "client.sock"
)

// socketPath returns the path of etcd's socket in a directory, for this process and until release is called: where the path would be too
// long, it leads through a file that the process has open, the directory. The directory for temporary files would be another one for
// "hub backup" than for a hub that systemd runs.
func socketPath(dir string) (path string, release func(), err error) {
	if path = filepath.Join(dir, etcdSocket); len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	directory, err := os.Open(dir)
	if err != nil {
		return "", nil, fmt.Errorf("opening etcd directory: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", directory.Fd(), etcdSocket), func() { _ = directory.Close() }, nil
}

// runningSocket returns the path of the socket of the etcd that runs in a directory, for this process and until release is called.
func runningSocket(dir string) (path string, release func(), err error) {
	if _, err := os.Stat(filepath.Join(dir, etcdSocket)); err != nil {
		return "", nil, err
	}
	return socketPath(dir)
}
