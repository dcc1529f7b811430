package response

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// recorder remembers the most that was written between two flushes. It fails when it has more than limit.
type recorder struct {
	httptest.ResponseRecorder
	frame, most, limit int
}

func (r *recorder) Write(p []byte) (int, error) {
	r.frame += len(p)
	r.most = max(r.most, r.frame)
	if r.Body.Len() > r.limit {
		return 0, errors.New("gone")
	}
	return r.ResponseRecorder.Write(p)
}

func (r *recorder) FlushError() error {
	r.frame = 0
	return nil
}

func newRecorder(limit int) *recorder {
	return &recorder{ResponseRecorder: *httptest.NewRecorder(), limit: limit}
}

func TestWriteChunks(t *testing.T) {
	for length, most := range map[int]int{
		0: 0, 1: 1, smallFrame: smallFrame, smallFrame + 1: smallFrame, smallBody: smallFrame, smallBody + 1: largeFrame,
		100*largeFrame + 7: largeFrame,
	} {
		body, w := bytes.Repeat([]byte("x"), length), newRecorder(1<<20)
		if err := WriteChunks(w, body); err != nil || !bytes.Equal(w.Body.Bytes(), body) || w.most != most {
			t.Errorf("of %d bytes %d were written, %d in one frame, want %d: %v", length, w.Body.Len(), w.most, most, err)
		}
	}
	if err := WriteChunks(newRecorder(smallFrame), make([]byte, 4*smallFrame)); err == nil {
		t.Error("a client that has gone is not noticed")
	}
}

// TestLengthIsSent: a client of HTTP/1.0, such as a proxy, has nothing else by which to notice that an answer is cut off.
func TestLengthIsSent(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 3*smallFrame)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Write(w, http.StatusOK, "text/plain", body)
	}))
	defer server.Close()
	answer, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || !bytes.Equal(got, body) || answer.ContentLength != int64(len(body)) {
		t.Errorf("%d bytes with the length %d: %v", len(got), answer.ContentLength, err)
	}
}
