package apiproxy

import (
	"context"
	"errors"
	"sync"
)

// errStopping is why requests are ended, and no more are begun, when the hub stops.
var errStopping = errors.New("this replica of the hub is stopping")

// lifetime knows what is under way, so that no request outlives the audit log. An HTTP server forgets connections that have become another
// protocol.
type lifetime struct {
	ctx context.Context
	end context.CancelCauseFunc

	mu   sync.Mutex
	over bool
	open sync.WaitGroup
}

func newLifetime() *lifetime {
	l := &lifetime{}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

// enter returns a context that ends with the request's own or when close is called, and what to call after the request; false after close.
func (l *lifetime) enter(parent context.Context) (context.Context, func(), bool) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return nil, nil, false
	}
	l.open.Add(1)
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(l.ctx, func() { cancel(errStopping) })
	return ctx, func() {
		stop()
		cancel(nil)
		l.open.Done()
	}, true
}

// close ends everything and waits until it has ended.
func (l *lifetime) close() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.end(errStopping)
	l.open.Wait()
}
