package image

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/retry"
)

// permanentError is an error of an endpoint that another request to it does not cure.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// localError is an error of this machine, which no endpoint can cure.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }

// retryable reports whether another request may succeed: the endpoint is overloaded or unreachable, or the connection was cut. A
// certificate that is not trusted and an image that does not exist stay so.
func retryable(err error) bool {
	var permanent *permanentError
	var certificate *tls.CertificateVerificationError
	var unknownCA x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	if errors.As(err, &permanent) || errors.As(err, &certificate) || errors.As(err, &unknownCA) || errors.As(err, &record) ||
		errors.Is(err, http.ErrSchemeMismatch) {
		return false
	}
	status := statusOf(err)
	return status == 0 || retry.Temporary(status)
}

// retrier gets one thing from any of several endpoints. go-containerregistry's retry is not used: it repeats one request to one endpoint.
type retrier struct {
	// patience is for how long to retry without progress; with 0 each endpoint is asked once.
	patience time.Duration
	// baseDelay is the delay after the first round; it doubles up to maxDelay.
	baseDelay time.Duration
	// onError is called with every error.
	onError func(c *client, err error)
}

// run asks the endpoints in turn, round after round, until get succeeds with one of them. An endpoint is not asked again after an error
// that is not retryable, and not before the time that its Retry-After names. get calls onProgress when it has received something, even if
// it fails later. The error is an *endpointsError, a *localError, or the cause of ctx.
func (r retrier) run(ctx context.Context, clients []*client, get func(ctx context.Context, c *client, onProgress func()) error) error {
	last := map[*client]error{}
	since, rounds := time.Now(), 0
	onProgress := func() { since, rounds = time.Now(), 0 }
	for {
		// shortest is the time until the first endpoint that is worth asking may be asked; negative while there is none.
		var shortest time.Duration = -1
		for _, c := range clients {
			if err := last[c]; err != nil && !retryable(err) {
				continue
			}
			if last[c] == nil || c.transport.notBefore.Wait() == 0 {
				err := get(ctx, c, onProgress)
				var local *localError
				switch {
				case err == nil:
					return nil
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case errors.As(err, &local):
					return err
				}
				last[c] = err
				r.onError(c, err)
				if !retryable(err) {
					continue
				}
			}
			if wait := c.transport.notBefore.Wait(); wait < shortest || shortest < 0 {
				shortest = wait
			}
		}
		if shortest < 0 {
			return newEndpointsError(clients, last, 0)
		}
		rounds++
		delay := max(shortest, retry.Delay(rounds, r.baseDelay, maxDelay))
		if spent := time.Since(since); spent+delay > r.patience {
			return newEndpointsError(clients, last, spent)
		}
		if err := retry.Sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// endpointsError names every endpoint and its last error.
type endpointsError struct {
	hosts []string
	errs  []error
	// after is for how long it was retried without progress; 0 if no endpoint was worth another request.
	after time.Duration
}

func newEndpointsError(clients []*client, last map[*client]error, after time.Duration) *endpointsError {
	e := &endpointsError{after: after}
	for _, c := range clients {
		e.hosts = append(e.hosts, c.endpoint.url.Host)
		e.errs = append(e.errs, last[c])
	}
	return e
}

func (e *endpointsError) Error() string {
	var parts []string
	if after := e.after.Round(100 * time.Millisecond); after > 0 {
		parts = append(parts, fmt.Sprintf("gave up after %s without progress", after))
	}
	for i, err := range e.errs {
		parts = append(parts, fmt.Sprintf("from %s: %v", e.hosts[i], err))
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns the errors of all endpoints.
func (e *endpointsError) Unwrap() []error { return e.errs }
