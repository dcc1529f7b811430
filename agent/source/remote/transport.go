package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent/retry"
)

const (
	// maxResponseBytes bounds a response, and one event of a watch. A Secret of the largest size takes less than half of it.
	maxResponseBytes = 4 << 20
	// maxRetryAfter is for how long a hub may keep the agent from sending requests.
	maxRetryAfter = 5 * time.Minute
	// caChecksumHeader holds the hexadecimal SHA-256 of the hub's certificate authorities.
	caChecksumHeader = "X-Drover-Cacerts-Checksum"
	// longestWatchHeader holds for how many seconds a watch may go on, where that is longer than its timeoutSeconds.
	longestWatchHeader = "X-Drover-Longest-Watch"
	// A body of up to smallBody bytes is sent in frames of smallFrame bytes, as are the answers of the hub, a larger one in frames of
	// largeFrame. The hub keeps a buffer of the size of the largest frame, and another one of at least twice that for TLS, for as long as the
	// agent is connected.
	smallFrame = 1 << 10
	largeFrame = 4 << 10
	smallBody  = 32 << 10
	// slowestLink is how many bytes a second a link takes at least of what the agent sends.
	slowestLink = 4 << 10
)

// transport honors Retry-After, bounds responses, ends those that stop, and remembers the hub's checksum of its authorities.
type transport struct {
	next      http.RoundTripper
	notBefore retry.NotBefore
	// caChecksum is that of the last response, a string; empty if it had none.
	caChecksum atomic.Value
}

// busyError is returned in place of a response while the hub wants no requests.
type busyError struct{ wait time.Duration }

func (e *busyError) Error() string {
	return fmt.Sprintf("hub asked to retry after %s", e.wait.Round(time.Second))
}

var errTooLarge = errors.New("the hub's response is larger than any Secret can be")

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if wait := t.notBefore.Wait(); wait > 0 {
		return nil, &busyError{wait}
	}
	watch := r.URL.Query().Get("watch") != ""
	var silence *silence
	if !watch { // its end is up to Source.watch
		silence = newSilence(r, requestTimeout)
		r = r.WithContext(silence.ctx)
	}
	response, err := t.next.RoundTrip(inSmallFrames(r))
	if err != nil {
		err = silence.explain(err)
		silence.end()
		return nil, err
	}
	silence.broken()
	t.notBefore.Note(response, maxRetryAfter)
	t.caChecksum.Store(response.Header.Get(caChecksumHeader))
	response.Body = &limitedBody{ReadCloser: response.Body, silence: silence, byLine: watch}
	return response, nil
}

// errSilent ends a request for which nothing is transferred any more.
var errSilent = errors.New("the hub does not answer, or its answer has stopped")

// silence ends a request when nothing is transferred any more, however long it takes as a whole: over a link of 64 kbit/s a large Secret
// takes minutes. nil is for a request without that.
type silence struct {
	// ctx is that of the request.
	ctx    context.Context
	cancel context.CancelCauseFunc
	after  time.Duration
	timer  *time.Timer
}

// newSilence begins with the request. Nobody can tell how much of its body has arrived: the kernel takes all of it at once. So the first
// silence is longer for a large one.
func newSilence(r *http.Request, after time.Duration) *silence {
	ctx, cancel := context.WithCancelCause(r.Context())
	sending := time.Duration(max(r.ContentLength, 0)/slowestLink) * time.Second
	return &silence{ctx: ctx, cancel: cancel, after: after, timer: time.AfterFunc(after+sending, func() { cancel(errSilent) })}
}

// broken says that something has been received.
func (s *silence) broken() {
	if s != nil && s.ctx.Err() == nil {
		s.timer.Reset(s.after)
	}
}

// explain returns errSilent for an error that follows from it, and any other error as it is.
func (s *silence) explain(err error) error {
	if s != nil && err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(s.ctx), errSilent) {
		return errSilent
	}
	return err
}

func (s *silence) end() {
	if s != nil {
		s.timer.Stop()
		s.cancel(nil)
	}
}

// inSmallFrames returns a request whose body is read, and with it sent, a little at a time.
func inSmallFrames(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	size := smallFrame
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		size = largeFrame
	}
	out := *r
	out.Body = smallReads{r.Body, size}
	if r.GetBody != nil {
		out.GetBody = func() (io.ReadCloser, error) {
			body, err := r.GetBody()
			return smallReads{body, size}, err
		}
	}
	return &out
}

// smallReads reads no more than size at a time.
type smallReads struct {
	io.ReadCloser
	size int
}

func (b smallReads) Read(p []byte) (int, error) {
	return b.ReadCloser.Read(p[:min(len(p), b.size)])
}

// offeredChecksum returns the checksum of the hub's authorities by its last response; empty if that had none.
func (t *transport) offeredChecksum() string {
	checksum, _ := t.caChecksum.Load().(string)
	return checksum
}

// limitedBody fails when a response is too large. A watch has no end; there, each line is bounded.
type limitedBody struct {
	io.ReadCloser
	silence *silence
	byLine  bool
	read    int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.silence.broken()
	}
	b.read += n
	if i := bytes.LastIndexByte(p[:n], '\n'); b.byLine && i >= 0 {
		b.read = n - 1 - i
	}
	if b.read > maxResponseBytes {
		return 0, errTooLarge
	}
	return n, b.silence.explain(err)
}

func (b *limitedBody) Close() error {
	defer b.silence.end()
	return b.ReadCloser.Close()
}
