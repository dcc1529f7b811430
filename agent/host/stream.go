package host

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// AppendStream implements Host.
func (Machine) AppendStream(path string, content io.Reader) (int64, error) {
	dir := filepath.Dir(path)
	if err := makeParents(dir, 0o755); err != nil {
		return 0, err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	written, err := io.Copy(file, content)
	if synced := file.Sync(); err == nil {
		err = synced
	}
	if synced := syncDir(dir); err == nil {
		err = synced
	}
	return written, err
}
