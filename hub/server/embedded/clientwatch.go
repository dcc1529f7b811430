package embedded

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

const (
	// outBuffer is how many events a watch holds for its client, as many as a watch of etcd3.
	outBuffer = 100
	// sendTimeout is how long a client may take no event, while more than outBuffer wait for it.
	sendTimeout = 30 * time.Second
)

// clientWatch is a watch as its client sees it. It passes on the events of an inner watch, and ends when the client has taken none for
// sendTimeout: what a client has not read is held by etcd's client, without any bound. A watch cache ends such watches, too. The client
// watches again from the last version that it has seen, or lists if etcd does not have that version any more.
type clientWatch struct {
	ctx context.Context //nolint:containedctx // that of the request, with which the watch ends
	// key is what is watched, for the log.
	key string
	in  watch.Interface
	// encoded is what its events share with those of other watches; nil for nothing.
	encoded *encodeOnce
	// trim makes the objects smaller; nil leaves them.
	trim    func(object any) (any, error)
	out     chan watch.Event
	stop    sync.Once
	stopped chan struct{}
}

// newClientWatch returns a watch that passes on the events of in once its run is called.
func newClientWatch(ctx context.Context, key string, in watch.Interface, encoded *encodeOnce) *clientWatch {
	return &clientWatch{ctx: ctx, key: key, in: in, encoded: encoded, out: make(chan watch.Event, outBuffer), stopped: make(chan struct{})}
}

// ResultChan implements watch.Interface.
func (w *clientWatch) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *clientWatch) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.in.Stop()
	})
}

// run passes on events until the watch ends.
func (w *clientWatch) run() {
	defer w.end()
	for {
		select {
		case event, ok := <-w.in.ResultChan():
			if !ok || !w.send(event) {
				return
			}
		case <-w.stopped:
			return
		case <-w.ctx.Done():
			return
		}
	}
}

// end stops the inner watch and closes the client's channel. It is called once, by the goroutine that sends.
func (w *clientWatch) end() {
	w.Stop()
	close(w.out)
}

// send returns false when the watch ends.
func (w *clientWatch) send(event watch.Event) bool {
	if w.trim != nil {
		_, _ = w.trim(event.Object) // nobody else has it
	}
	event = w.encoded.share(event, w.trim != nil)
	select {
	case w.out <- event:
		return true
	default: // only a client that is behind needs a timer
	}
	timeout := time.NewTimer(sendTimeout)
	defer timeout.Stop()
	select {
	case w.out <- event:
		return true
	case <-timeout.C:
		klog.InfoS("Ending a watch whose client takes no events", "key", w.key, "timeout", sendTimeout)
		return false
	case <-w.stopped:
		return false
	case <-w.ctx.Done():
		return false
	}
}
