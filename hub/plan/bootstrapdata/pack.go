package bootstrapdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
)

// gzipped compresses without a time or a name, so that the same content gives the same bytes.
func gzipped(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, writeErr := w.Write(content)
		err = errors.Join(writeErr, w.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("compressing bootstrap data: %w", err)
	}
	return b.Bytes(), nil
}

func base64Text(content []byte) string { return base64.StdEncoding.EncodeToString(content) }
