package fake

import (
	"bytes"
	"io"
	"path/filepath"

	"github.com/drover-dev/drover/agent/host"
)

// AppendStream implements host.Host. What came before content failed is on the disk as one effect.
func (h *Host) AppendStream(path string, content io.Reader) (int64, error) {
	raw, failed := io.ReadAll(content)
	err := h.effect("append", path, func() error {
		old := h.files[filepath.Clean(path)]
		return h.put(path, File{Content: append(bytes.Clone(old.Content), raw...), Attrs: host.Private(0o600)})
	})
	if err != nil {
		return 0, err
	}
	return int64(len(raw)), failed
}
