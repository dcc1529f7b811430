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
		c.answer(true)
		defer c.answer(false)
		b.next.ServeHTTP(w, r)
		return
	}
	body := &body{ReadCloser: r.Body, control: http.NewResponseController(w), conn: c, begun: time.Now(), time: b.time}
	body.extend()
	defer c.answer(false)
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
	r.Body = body
	b.next.ServeHTTP(w, r)
}

// answer records that a request has arrived and is being answered, or that it was. There is no connection in tests of handlers.
func (c *conn) answer(now bool) {
	if c != nil {
		c.listener.answering(c, now)
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
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.end()
		b.conn.answer(true)
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
