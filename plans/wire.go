package plans

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"sync"
	"time"
)

// MaxValueBytes limits what a compressed value of the plan Secret may decompress to. A Secret holds 1 MiB at most; text that shrinks to a
// sixteenth still passes, a decompression bomb does not.
const MaxValueBytes = 16 << 20

// writers are reused, since each holds most of a mebibyte.
var writers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compress returns the same bytes for the same input: default level, no time, no name.
func compress(plain []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&buf)
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func decompress(raw []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, MaxValueBytes+1))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	if len(plain) > MaxValueBytes {
		return nil, fmt.Errorf("decompressing: result exceeds %d bytes", MaxValueBytes)
	}
	return plain, nil
}

// FormatTime writes a time as the Secret holds it, in time.UnixDate and in the time's own zone; the zero time is empty. Pass times in UTC:
// the form has no offset, and another machine may not know the name of a zone.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.UnixDate)
}

// ParseTime reads what FormatTime writes. Anything else is an error.
func ParseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.UnixDate, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time in the form %q", s, time.UnixDate)
	}
	return t, nil
}
