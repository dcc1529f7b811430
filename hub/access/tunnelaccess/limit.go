package tunnelaccess

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

const (
	// MaxBody is how many bytes of an answer are read, and maxErrorBody of one that refuses a request. client-go keeps whole bodies in memory.
	MaxBody      = 64 << 20
	maxErrorBody = 1 << 20
)

// BodyLimitError is the error of reading the body of an answer that is longer than the hub accepts.
type BodyLimitError struct{ Limit int64 }

// Error implements error.
func (e *BodyLimitError) Error() string {
	return fmt.Sprintf("the answer of the cluster is longer than %d KiB, which is the most that the hub reads of it", e.Limit>>10)
}

// LimitBodies makes reading the body of an answer fail after so many bytes, earlier if the answer refuses the request. Upgraded connections
// and watches are excepted; who reads a watch has to limit its events, since client-go does not if they are JSON.
func LimitBodies(config *rest.Config, limit int64) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &limitedBodies{next, limit} })
}

type limitedBodies struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (l *limitedBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit := l.limit
	switch {
	case answer.StatusCode == http.StatusSwitchingProtocols:
		return answer, nil
	case answer.StatusCode != http.StatusOK:
		limit = min(limit, maxErrorBody)
	case r.URL.Query().Get("watch") == "true":
		return answer, nil
	}
	answer.Body = &limitedBody{answer.Body, limit, &BodyLimitError{limit}}
	return answer, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (l *limitedBodies) WrappedRoundTripper() http.RoundTripper { return l.next }

type limitedBody struct {
	io.ReadCloser
	left  int64
	limit *BodyLimitError
}

// Read implements io.Reader. The body may be exactly as long as the limit.
func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), b.limit
	}
	b.left -= int64(n)
	return n, err
}
