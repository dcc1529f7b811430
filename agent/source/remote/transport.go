package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/registration"
)

const (
	// maxAnswer bounds an answer, and one event of a watch. A Secret of the largest size that there may be takes less than half of it.
	maxAnswer = 4 << 20
	// longestPatience is for how long a hub may keep the agent from asking again.
	longestPatience = 5 * time.Minute
	// caChecksumHeader tells the SHA-256 of the authorities that the hub hands out.
	caChecksumHeader = "X-Drover-Cacerts-Checksum"
)

// transport is between the agent and its hub: it notes what every answer tells, bounds answers, and asks nothing while the hub has
// asked not to be asked.
type transport struct {
	next http.RoundTripper

	mu         sync.Mutex
	until      time.Time
	caChecksum string
}

// busyError is in place of the answer that a request would have got.
type busyError struct{ wait time.Duration }

func (e *busyError) Error() string {
	return fmt.Sprintf("the hub has asked to be left alone for another %s", e.wait.Round(time.Second))
}

var errTooLarge = errors.New("the hub's answer is larger than any Secret can be")

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if wait := t.patience(); wait > 0 {
		return nil, &busyError{wait}
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	t.note(response)
	response.Body = &boundedBody{ReadCloser: response.Body, byLine: r.URL.Query().Get("watch") != ""}
	return response, nil
}

func (t *transport) note(response *http.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.caChecksum = response.Header.Get(caChecksumHeader)
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		if wait := registration.RetryAfter(response.Header, time.Now()); wait > 0 {
			t.until = time.Now().Add(min(wait, longestPatience))
		}
	}
}

// patience is how long the hub still wants not to be asked.
func (t *transport) patience() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(time.Until(t.until), 0)
}

// offered is the checksum of the authorities as the last answer told it; empty where it did not.
func (t *transport) offered() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.caChecksum
}

// boundedBody ends an answer that is too large. A watch has no end; there, each line is bounded.
type boundedBody struct {
	io.ReadCloser
	byLine bool
	read   int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += n
	if b.byLine {
		for i := n - 1; i >= 0; i-- {
			if p[i] == '\n' {
				b.read = n - 1 - i
				break
			}
		}
	}
	if b.read > maxAnswer {
		return 0, errTooLarge
	}
	return n, err
}
