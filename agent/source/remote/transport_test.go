package remote

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// TestSmallFrames: a report is sent a little at a time, also when it is sent again on another connection, and is complete.
func TestSmallFrames(t *testing.T) {
	report := bytes.Repeat([]byte("report"), 5000)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://hub.example", bytes.NewReader(report))
	if err != nil {
		t.Fatal(err)
	}
	out := inSmallFrames(r)
	again, err := out.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]io.Reader{"first": out.Body, "again": again} {
		var sent []byte
		for buffer := make([]byte, 64<<10); ; {
			n, err := body.Read(buffer)
			if n > sentAtOnce {
				t.Errorf("%s: %d bytes are sent at once", name, n)
			}
			sent = append(sent, buffer[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(sent, report) {
			t.Errorf("%s: %d bytes of %d were sent, or others", name, len(sent), len(report))
		}
	}
	if out.ContentLength != int64(len(report)) {
		t.Errorf("the length is said to be %d", out.ContentLength)
	}
	if get, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://hub.example", nil); inSmallFrames(get) != get {
		t.Error("a request without a body is changed")
	}
}
