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
	// short are the ordinary requests under way.
	short sync.WaitGroup
}

func newLifetime() *lifetime {
	l := &lifetime{}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

// enter returns a context that ends with the request's own or when close is called, and what to call after the request; false after drain
// and close. short is set for ordinary requests.
func (l *lifetime) enter(parent context.Context, short bool) (context.Context, func(), bool) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return nil, nil, false
	}
	l.open.Add(1)
	if short {
		l.short.Add(1)
	}
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(l.ctx, func() { cancel(errStopping) })
	return ctx, func() {
		stop()
		cancel(nil)
		if short {
			l.short.Done()
		}
		l.open.Done()
	}, true
}

// stop begins no more requests.
func (l *lifetime) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// drain begins no more requests, and returns when the ordinary ones have ended, or ctx has.
func (l *lifetime) drain(ctx context.Context) {
	l.stop()
	idle := make(chan struct{})
	go func() { // until close at the latest
		l.short.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close ends everything and waits until it has ended.
func (l *lifetime) close() {
	l.stop()
	l.end(errStopping)
	l.open.Wait()
}
