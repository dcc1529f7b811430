package replicas

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

// countedBody closes reached when so many bytes of it were read.
type countedBody struct {
	io.Reader
	left    int
	reached chan struct{}
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left > 0 && b.left <= n {
		close(b.reached)
	}
	b.left -= n
	return n, err
}

// TestStalledUpload: the body of a request that the other replica does not read holds up no other request.
func TestStalledUpload(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	stalled := make(chan struct{})
	a := newReplica(t, "a", ca, nil)
	b := newReplica(t, "b", ca, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "c-1") {
			<-stalled
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	join(t, a, b)
	b.own.set("c-1", true)
	b.own.set("c-2", true)
	wait.Until(t, timeout, "the sessions", func() bool { return a.Directory.Connected("c-1") && a.Directory.Connected("c-2") })

	// More than 1 MiB, which is what an HTTP/2 server of Go receives at most while no handler reads.
	body := &countedBody{strings.NewReader(strings.Repeat("x", 3<<20)), 1 << 20, make(chan struct{})}
	large, ended := request(t, http.MethodPost, "/k8s/clusters/c-1/api", body), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = send(a.Directory, "c-1", large)
	}()
	defer func() { <-ended }()
	defer close(stalled)
	<-body.reached

	ctx, cancel := context.WithTimeout(t.Context(), timeout/4)
	defer cancel()
	want := strings.Repeat("y", 1<<10)
	small := request(t, http.MethodPost, "/k8s/clusters/c-2/api", strings.NewReader(want)).WithContext(ctx)
	if got, err := send(a.Directory, "c-2", small); err != nil || got != want {
		t.Errorf("a request of another cluster gets %d bytes, %v", len(got), err)
	}
}

// TestStalledDownload: this replica keeps little of an answer that nobody reads.
func TestStalledDownload(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var written atomic.Int64
	blocked := make(chan error, 1)
	a := newReplica(t, "a", ca, nil)
	b := newReplica(t, "b", ca, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control, piece := http.NewResponseController(w), make([]byte, 16<<10)
		for {
			_ = control.SetWriteDeadline(time.Now().Add(2 * time.Second))
			if _, err := w.Write(piece); err != nil {
				blocked <- err
				return
			}
			if written.Add(int64(len(piece))) > 64<<20 {
				blocked <- nil
				return
			}
		}
	}))
	join(t, a, b)
	b.own.set("c-1", true)
	wait.Until(t, timeout, "the session", func() bool { return a.Directory.Connected("c-1") })
	owner, _ := a.Owner("c-1")
	response, err := owner.RoundTrip(request(t, http.MethodGet, "/k8s/clusters/c-1/api", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := <-blocked; err == nil {
		t.Error("the other replica was not held up")
	}
	if got := written.Load(); got < receiveBuffer/2 || got > 2*receiveBuffer {
		t.Errorf("%d KiB were taken of an answer that nobody reads, want about %d", got>>10, receiveBuffer>>10)
	}
}
