package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
)

// ErrLoop is returned for a request that was forwarded once already. The replica that forwarded it believed that there was a session here.
var ErrLoop = errors.New("the request was forwarded by another replica and is not forwarded again")

// LostError is returned if no replica answered a request.
type LostError struct {
	Key string
	// Unsent is true where no replica has got any of the request, so that it can be sent again whatever it asks for.
	Unsent bool
	Err    error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("no other replica answers for the session of %s: %v", e.Key, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// Owner returns what takes a request to a replica that has a session of the key; false where no other replica has one. The request must go
// to the path that this replica was asked for, and to nobody who is not sure who sent it: the other one believes it.
func (d *Directory) Owner(key string) (http.RoundTripper, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return &forwarder{d, key}, len(d.owners[key]) > 0
}

// forwarder takes requests to the replicas that have sessions of one key.
type forwarder struct {
	d   *Directory
	key string
}

// RoundTrip sends the request to the best owner. Where that gives no answer, the next one gets the request, provided that it changes
// nothing or that the first one cannot have seen it.
func (f *forwarder) RoundTrip(r *http.Request) (response *http.Response, err error) {
	body := &guardedBody{ReadCloser: r.Body}
	defer func() { body.finish(err == nil) }()
	if r.Header.Get(headerForwarded) != "" {
		return nil, ErrLoop
	}
	lost := &LostError{Key: f.key, Unsent: true, Err: errors.New("none has one any more")}
	for tried := []*peer{}; ; {
		p, alive := f.d.choose(f.key, tried)
		if p == nil {
			f.d.metrics.forwarded.WithLabelValues("lost").Inc()
			return nil, lost
		}
		tried = append(tried, p)
		var sent bool
		response, sent, err = f.attempt(alive, p, r, body)
		if err == nil {
			f.d.metrics.forwarded.WithLabelValues("answered").Inc()
			return response, nil
		}
		lost.Err, lost.Unsent = err, lost.Unsent && !sent
		if r.Context().Err() != nil || body.touched.Load() || sent && !harmless(r) {
			f.d.metrics.forwarded.WithLabelValues("lost").Inc()
			return nil, lost
		}
	}
}

// harmless reports whether a request may be sent twice.
func harmless(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions) && !isUpgrade(r)
}

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// choose returns the owner to be asked next: one that goes on before one that is about to stop, then one that has just been heard.
func (d *Directory) choose(key string, tried []*peer) (*peer, context.Context) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var best *peer
	now, bestRank := sinceStart(), 0
	owners := d.owners[key]
	for i, offset := 0, rand.IntN(len(owners)+1); i < len(owners); i++ {
		p := owners[(i+offset)%len(owners)]
		rank := 1
		if !p.draining {
			rank++
		}
		if p.unseenFor(now) < suspectAfter {
			rank += 2
		}
		if rank > bestRank && !slices.Contains(tried, p) {
			best, bestRank = p, rank
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, best.alive
}

// attempt sends the request to one replica and waits for its answer, for as long as the replica is heard. sent reports whether the replica
// may have seen it.
func (f *forwarder) attempt(alive context.Context, p *peer, r *http.Request, body *guardedBody) (_ *http.Response, sent bool, _ error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(alive, func() { cancel(fmt.Errorf("replica %s stopped responding", p.ID)) })
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})

	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = "https", p.Address, r.Host, ""
	out.Header.Set(headerForwarded, f.d.opts.ReplicaID)
	transport := p.plain
	if r.Body != nil && r.Body != http.NoBody {
		out.Body, transport = body, p.separate
	}
	if isUpgrade(r) {
		transport = p.separate
	}
	response, err := transport.RoundTrip(out)
	if err != nil {
		stop()
		cause := context.Cause(ctx)
		cancel(nil)
		if r.Context().Err() == nil && cause != nil {
			err = cause
		}
		return nil, connected.Load(), err
	}
	response.Body = watched(alive, response.Body, func() { stop(); cancel(nil) })
	response.Request = r
	return response, true, nil
}

// guardedBody keeps a request's body open between two attempts and knows whether any of it has been read.
type guardedBody struct {
	io.ReadCloser
	touched, closed, over atomic.Bool
}

func (b *guardedBody) Read(p []byte) (int, error) {
	b.touched.Store(true)
	return b.ReadCloser.Read(p)
}

// Close is put off until no further attempt follows.
func (b *guardedBody) Close() error {
	b.closed.Store(true)
	if b.over.Load() {
		return b.ReadCloser.Close()
	}
	return nil
}

// finish ends the attempts; the transport of the last one, where that was answered, goes on reading as long as it wants.
func (b *guardedBody) finish(answered bool) {
	b.over.Store(true)
	if b.ReadCloser != nil && (!answered || b.closed.Load()) {
		_ = b.ReadCloser.Close()
	}
}

// watched is the body of an answer, which ends when the replica it comes from stopped responding. Where the answer is the beginning of
// another protocol, it can be written to as before.
func watched(alive context.Context, body io.ReadCloser, done func()) io.ReadCloser {
	b := &watchedBody{ReadCloser: body, done: done}
	if rw, ok := body.(io.ReadWriteCloser); ok {
		both := &watchedConn{watchedBody: b, writer: rw}
		b.unwatch = context.AfterFunc(alive, func() { _ = rw.Close() })
		return both
	}
	return b
}

type watchedBody struct {
	io.ReadCloser
	done    func()
	unwatch func() bool
}

func (b *watchedBody) Close() error {
	if b.unwatch != nil {
		b.unwatch()
	}
	err := b.ReadCloser.Close()
	b.done()
	return err
}

type watchedConn struct {
	*watchedBody
	writer io.Writer
}

func (c *watchedConn) Write(p []byte) (int, error) { return c.writer.Write(p) }
