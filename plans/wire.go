package plans

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"sync"
	"time"
)

// MaxOutputBytes bounds what a compressed value of the plan Secret may unpack to. A Secret holds 1 MiB at most; text that shrinks to
// a sixteenth still passes, a bomb does not.
const MaxOutputBytes = 16 << 20

// writers are used again, since each holds most of a mebibyte. Those that nobody uses go away with the next collection of garbage.
var writers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compress gives the same bytes for the same input: default level, no time, no name.
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
	plain, err := io.ReadAll(io.LimitReader(r, MaxOutputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	if len(plain) > MaxOutputBytes {
		return nil, fmt.Errorf("decompressing: more than %d bytes come out", MaxOutputBytes)
	}
	return plain, nil
}

// FormatTime writes a time as the Secret holds it, in time.UnixDate and in the time's own zone; the zero time is empty. Write times in
// UTC: the form has no offset, and another machine may not know the name of a zone.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.UnixDate)
}

// ParseTime reads what FormatTime writes.
func ParseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.UnixDate, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time like %q", s, time.UnixDate)
	}
	return t, nil
}
