package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// maxSocketPath is what the kernel allows for the path of a unix socket (108 bytes with the final zero).
	maxSocketPath = 107
	// etcdSocket is the name of etcd's socket in etcd's directory, etcdSocketPath that of a file with its path where it lies elsewhere.
	etcdSocket     = "client.sock"
	etcdSocketPath = "client.sock.path"
)

// socketPath chooses where etcd's socket lies: beside its data, or in a directory of its own where that path would be too long. The path of
// that one is written into a file, see runningSocket.
func socketPath(dir string) (path string, remove func(), err error) {
	path = filepath.Join(dir, etcdSocket)
	pathFile := filepath.Join(dir, etcdSocketPath)
	if len(path) <= maxSocketPath {
		// A killed hub whose data directory had a longer name has left its file.
		if err := os.Remove(pathFile); ignoreMissing(err) != nil {
			return "", nil, fmt.Errorf("removing what an earlier hub has left: %w", err)
		}
		return path, func() { _ = os.Remove(path) }, nil
	}
	short, err := os.MkdirTemp("", "drover-etcd-")
	if err != nil {
		return "", nil, fmt.Errorf("making directory for the etcd socket: %w", err)
	}
	path = filepath.Join(short, etcdSocket)
	remove = func() {
		_ = os.Remove(pathFile)
		_ = os.RemoveAll(short)
	}
	if err := writeFile(pathFile, []byte(path), 0o600); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// runningSocket returns the path of the socket of the etcd that runs in a directory. A path from the file is used only if nobody but the
// owner of the directory can have written the file and created the socket: others may write into the directory for temporary files.
func runningSocket(dir string) (string, error) {
	path := filepath.Join(dir, etcdSocket)
	raw, err := os.ReadFile(filepath.Join(dir, etcdSocketPath))
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(path)
		return path, err
	}
	if err != nil {
		return "", err
	}
	path = string(raw)
	directory, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if directory.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("%s must have mode 0700, got %04o", dir, directory.Mode().Perm())
	}
	socket, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if socket.Mode().Type() != fs.ModeSocket || !sameOwner(socket, directory) {
		return "", fmt.Errorf("%s must be a socket of the owner of %s", path, dir)
	}
	return path, nil
}

// sameOwner reports whether two files belong to the same user.
func sameOwner(a, b fs.FileInfo) bool {
	statA, okA := a.Sys().(*syscall.Stat_t)
	statB, okB := b.Sys().(*syscall.Stat_t)
	return okA && okB && statA.Uid == statB.Uid
}
