package image

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// maxPause bounds the pause between two tries.
const maxPause = 30 * time.Second

// permanentError is an error that trying again does not cure.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

func permanent(err error) error { return &permanentError{err} }

// localError is an error of this machine, for which no endpoint can do anything.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }

// transient tells whether trying again may help: the endpoint is overloaded or away, or the connection was cut. A certificate that does
// not fit and an image that is not there stay so.
func transient(err error) bool {
	var lasting *permanentError
	var certificate *tls.CertificateVerificationError
	var unknownCA x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	if errors.As(err, &lasting) || errors.As(err, &certificate) || errors.As(err, &unknownCA) || errors.As(err, &record) ||
		errors.Is(err, http.ErrSchemeMismatch) {
		return false
	}
	switch code := statusOf(err); {
	case code == 0, code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		return true
	default:
		return false
	}
}

// effort is how one thing is got from any of several endpoints.
type effort struct {
	// patience is how long to go on without getting anywhere; 0 asks each endpoint once.
	patience time.Duration
	// pause is the first pause; later ones grow.
	pause time.Duration
	// told hears of every failure, with the pause that follows or 0.
	told func(s *session, err error)
}

// run asks the endpoints in turn, round after round. An endpoint whose failure is permanent is not asked again. Calling moved tells that
// something was got, even if it was not all.
func (e effort) run(ctx context.Context, sessions []*session, get func(s *session, moved func()) error) error {
	said := map[*session]error{}
	since, pause := time.Now(), e.pause
	moved := func() { since, pause = time.Now(), e.pause }
	for {
		var shortest time.Duration = -1
		for _, s := range sessions {
			if err := said[s]; err != nil && !transient(err) {
				continue
			}
			if said[s] == nil || s.wire.wait() == 0 {
				err := get(s, moved)
				var local *localError
				switch {
				case err == nil:
					return nil
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case errors.As(err, &local):
					return err
				}
				said[s] = err
				e.told(s, err)
				if !transient(err) {
					continue
				}
			}
			if wait := s.wire.wait(); shortest < 0 || wait < shortest {
				shortest = wait
			}
		}
		if shortest < 0 {
			return newFailure(sessions, said, 0)
		}
		rest := max(shortest, pause-pause/4+rand.N(pause/2+1))
		if spent := time.Since(since); spent+rest > e.patience {
			return newFailure(sessions, said, spent)
		}
		if !sleep(ctx, rest) {
			return context.Cause(ctx)
		}
		pause = min(2*pause, maxPause)
	}
}

// failure names every endpoint and what it said last.
type failure struct {
	endpoints []string
	errs      []error
	// after is how long it was tried without getting anywhere; 0 means that trying again would not have helped.
	after time.Duration
}

func newFailure(sessions []*session, said map[*session]error, after time.Duration) *failure {
	f := &failure{after: after}
	for _, s := range sessions {
		f.endpoints = append(f.endpoints, s.endpoint.url.Host)
		f.errs = append(f.errs, said[s])
	}
	return f
}

func (f *failure) Error() string {
	parts := make([]string, 0, len(f.errs)+1)
	if after := f.after.Round(100 * time.Millisecond); after > 0 {
		parts = append(parts, fmt.Sprintf("given up after %s without progress", after))
	}
	for i, err := range f.errs {
		parts = append(parts, fmt.Sprintf("from %s: %v", f.endpoints[i], err))
	}
	return strings.Join(parts, "; ")
}

func (f *failure) Unwrap() []error { return f.errs }

// hopeless tells that every endpoint has given a final answer.
func (f *failure) hopeless() bool {
	for _, err := range f.errs {
		if transient(err) {
			return false
		}
	}
	return true
}

// sleep tells whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
