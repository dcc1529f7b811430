package bootstrapdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
)

// writers are kept, since each needs more than half a megabyte.
var writers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestCompression) // fails for levels that do not exist
	return w
}}

// gzipped compresses without a time or a name, so that the same content gives the same bytes.
func gzipped(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&b)
	_, err := w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("compressing bootstrap data: %w", err)
	}
	return b.Bytes(), nil
}

func base64Text(content []byte) string { return base64.StdEncoding.EncodeToString(content) }
