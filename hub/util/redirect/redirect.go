// Package redirect keeps the hub's HTTP clients from following redirects to another host. client-go adds credentials below the
// http.Client that follows redirects, so each hop gets them: the server that answers would decide who reads the token.
package redirect

import (
	"fmt"
	"net"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// Error is returned instead of an answer that redirects to another host.
type Error struct {
	// From and To are scheme and host of the request and of the redirect.
	From, To string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s redirects to %s: the hub does not follow redirects to another host, since its credential would be sent there",
		e.From, e.To)
}

// Restrict makes all clients of a configuration refuse redirects to another host. Earlier wrappers are kept.
func Restrict(config *rest.Config) { config.Wrap(Transport) }

// Transport returns a RoundTripper whose redirects to another scheme, host or port are errors. It goes below whatever adds credentials.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next: next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil || answer.StatusCode < http.StatusMultipleChoices || answer.StatusCode >= http.StatusBadRequest {
		return answer, err
	}
	location := answer.Header.Get("Location")
	if location == "" {
		return answer, nil
	}
	to, err := r.URL.Parse(location)
	if err == nil && origin(to) == origin(r.URL) {
		return answer, nil
	}
	_ = answer.Body.Close()
	if err != nil {
		return nil, &Error{From: origin(r.URL), To: "an invalid URL"}
	}
	return nil, &Error{From: origin(r.URL), To: origin(to)}
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// origin is scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port)
}
