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
	// refusalTime is how long a client may take to read a refusal.
	refusalTime = 20 * time.Second
)

// Handler bounds how long the body of a request may take to arrive, whoever reads it: also what net/http reads of it when the handler did
// not. The connection counts as one that is waited for until the body is there.
func Handler(next http.Handler) http.Handler { return bounded{next, bodyTime} }

type bounded struct {
	next http.Handler
	time time.Duration
}

func (b bounded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := connOf(r.Context())
	if r.Body == nil || r.Body == http.NoBody {
		c.answering(1)
		defer c.answering(-1)
		b.next.ServeHTTP(w, r)
		return
	}
	body := &body{ReadCloser: r.Body, control: http.NewResponseController(w), conn: c, begun: time.Now(), time: b.time}
	body.extend()
	defer body.answered()
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
	r.Body = body
	b.next.ServeHTTP(w, r)
}

// LimitRequests refuses the requests of an untrusted connection beyond maxRequests in progress: one of HTTP/2 may have hundreds. It belongs
// into Handler, around everything that may keep a client waiting, and inside of what trusts connections before it looks at a request. A
// refusal is 429, without a body that the client could refuse to read.
func LimitRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r.Context())
		if c == nil || c.dropped.Load() {
			next.ServeHTTP(w, r)
			return
		}
		if !c.listener.begin(c) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(refusalTime))
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		defer c.listener.end(c)
		next.ServeHTTP(w, r)
	})
}

// answering counts the requests that have arrived and are being answered. There is no connection in tests of handlers.
func (c *conn) answering(change int) {
	if c != nil && !c.dropped.Load() {
		c.listener.answering(c, change)
	}
}

type bodyKey struct{}

// body is the body of a request that has not arrived completely.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	conn    *conn
	begun   time.Time
	time    time.Duration
	size    int64

	mu sync.Mutex
	// over is set when there is nothing more to wait for, or the client is trusted.
	over bool
	// arrived is set when the body is there and its request counts as being answered, done when the request was answered.
	arrived, done bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.end()
		b.complete()
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

// complete counts the request as being answered, once. A proxy may read on when the request was answered.
func (b *body) complete() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.arrived && !b.done {
		b.arrived = true
		b.conn.answering(1)
	}
}

// answered ends what complete has begun.
func (b *body) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done = true; b.arrived {
		b.conn.answering(-1)
	}
}

// Trust marks the request of a context as authenticated: neither its connection nor its body is limited any more.
func Trust(ctx context.Context) {
	if c := connOf(ctx); c != nil {
		c.listener.mu.Lock()
		c.listener.drop(c)
		c.listener.mu.Unlock()
	}
	if b, ok := ctx.Value(bodyKey{}).(*body); ok {
		b.end()
	}
}
