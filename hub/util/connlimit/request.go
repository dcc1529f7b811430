package connlimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyTime is how long a body may take, and minimumRate, in bytes per second, gives large ones more time.
	bodyTime    = 20 * time.Second
	minimumRate = 16 << 10
	// maxRequests is how many requests of an untrusted connection may be in progress. A client that sends more before the hub has accepted a
	// credential has to send them again.
	maxRequests = 16
	// maxRefused is with how many requests in progress a connection is closed instead of refusing another one, while all connections together
	// have too many: refusals that are not read take memory, too.
	maxRefused = 4
	// maxCookie is how long the cookies of a request on an untrusted connection may be, in bytes. Headers of HTTP/2 that repeat each other
	// take hardly any memory, and cost their sender a byte, but net/http joins cookies to one text.
	maxCookie = 4 << 10
	// refusalTime is how long a client may take to read a refusal.
	refusalTime = 20 * time.Second
)

// BodyTime returns how long a body of a size in bytes may take to arrive from an untrusted client.
func BodyTime(size int64) time.Duration {
	return bodyTime + time.Duration(size/minimumRate)*time.Second
}

// Handler bounds how long the body of a request may take to arrive, whoever reads it: also what net/http reads of it when the handler did
// not.
func Handler(next http.Handler) http.Handler { return bounded{next, bodyTime} }

type bounded struct {
	next http.Handler
	time time.Duration
}

func (b bounded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		b.next.ServeHTTP(w, r)
		return
	}
	body := &body{ReadCloser: r.Body, control: http.NewResponseController(w), begun: time.Now(), time: b.time}
	body.extend()
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
	r.Body = body
	b.next.ServeHTTP(w, r)
}

// LimitRequests refuses the requests of an untrusted connection beyond maxRequests in progress, and those of all untrusted connections
// beyond the Limits: one of HTTP/2 may have hundreds. It belongs into Handler, around everything that may keep a client waiting, and inside
// of what trusts connections before it looks at a request. A refusal is 429, or 431 for too long cookies, without a body that the client
// could refuse to read. GET and HEAD have no body that the hub would read, so that one is discarded.
func LimitRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r.Context())
		if c == nil || c.dropped.Load() {
			next.ServeHTTP(w, r)
			return
		}
		tooLong := cookieLength(r.Header) > maxCookie
		if tooLong {
			r.Header.Del("Cookie")
		}
		decided := c.listener.begin(c)
		if decided == hangUp {
			_ = c.Close()
			return
		}
		defer c.listener.end(c)
		switch {
		case decided == refuse:
			w.Header().Set("Retry-After", "1")
			refuseWith(w, http.StatusTooManyRequests)
		case tooLong:
			refuseWith(w, http.StatusRequestHeaderFieldsTooLarge)
		default:
			discardBody(r)
			next.ServeHTTP(w, r)
		}
		// A small answer would be sent when the handlers have returned, and hold the request for as long as the client does not read it.
		if r.ProtoMajor == 2 && !c.dropped.Load() {
			_ = http.NewResponseController(w).Flush()
		}
	})
}

func refuseWith(w http.ResponseWriter, code int) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(refusalTime))
	w.WriteHeader(code)
}

func cookieLength(header http.Header) (length int) {
	for _, cookies := range header["Cookie"] {
		length += len(cookies)
	}
	return length
}

// discardBody discards the body of a GET or HEAD over HTTP/2, which otherwise stays in memory until the request has ended.
func discardBody(r *http.Request) {
	if r.ProtoMajor != 2 || r.Method != http.MethodGet && r.Method != http.MethodHead || r.Body == nil {
		return
	}
	_ = r.Body.Close()
	r.Body, r.ContentLength = http.NoBody, 0
	r.Header.Del("Content-Length")
}

// Answering marks the request of a context as one that the hub works on until done is called: of the untrusted connections those with such
// requests are closed last. It is for requests of which there are few, by slots or other limits: their connections outlast all others.
func Answering(ctx context.Context) (done func()) {
	c := connOf(ctx)
	if c == nil || c.dropped.Load() {
		return func() {}
	}
	c.listener.answering(c, 1)
	return func() { c.listener.answering(c, -1) }
}

type bodyKey struct{}

// body is the body of a request that has not arrived completely.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	begun   time.Time
	time    time.Duration
	size    int64

	mu sync.Mutex
	// over is set when there is nothing more to wait for, or the client is trusted.
	over bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.end()
	case n > 0:
		b.extend()
	}
	return n, err
}

func (b *body) extend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.control.SetReadDeadline(b.begun.Add(b.time + time.Duration(b.size/minimumRate)*time.Second))
	}
}

// end removes the time limit: the next read of the connection is to detect that the client has disconnected.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.over = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

// Trust marks the request of a context as authenticated: neither its connection nor its body is limited any more. The connection counts as
// one of those of key until it is closed, also when another protocol takes it over, and when there are more than limit, which is positive,
// the oldest one of them is closed. It counts for the key of the first call; those of the key "" are not limited.
func Trust(ctx context.Context, key string, limit int) {
	if c := connOf(ctx); c != nil && !c.dropped.Load() {
		if oldest := c.listener.trust(c, key, limit); oldest != nil {
			_ = oldest.Close()
		}
	}
	if b, ok := ctx.Value(bodyKey{}).(*body); ok {
		b.end()
	}
}
