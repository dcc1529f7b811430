package response

import (
	"bytes"
	"errors"
	"testing"
)

// recorder remembers what is written, and the most that was written at once. It fails when it has more than limit.
type recorder struct {
	bytes.Buffer
	most, limit int
}

func (r *recorder) Write(p []byte) (int, error) {
	r.most = max(r.most, len(p))
	if r.Len() > r.limit {
		return 0, errors.New("gone")
	}
	return r.Buffer.Write(p)
}

func TestWriteChunks(t *testing.T) {
	for _, length := range []int{0, 1, writtenAtOnce, writtenAtOnce + 1, 10*writtenAtOnce + 7} {
		body, w := bytes.Repeat([]byte("x"), length), &recorder{limit: 1 << 20}
		if err := WriteChunks(w, body); err != nil || !bytes.Equal(w.Bytes(), body) || w.most > writtenAtOnce {
			t.Errorf("of %d bytes %d were written, %d at once: %v", length, w.Len(), w.most, err)
		}
	}
	if err := WriteChunks(&recorder{limit: writtenAtOnce}, make([]byte, 4*writtenAtOnce)); err == nil {
		t.Error("a client that has gone is not noticed")
	}
}
