package embedded

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/ptr"
)

// bookmarks sends bookmarks to clients that take them. With them, a client that saw no event for long can continue its watch after etcd was
// compacted, and need not list everything again. Two make them: etcd says how far a watch is of a kind that nobody writes; and of a kind
// that others write, a watch with a selector has got all events up to the last that was looked at, whether or not it was for the watch.
// Every watch, with bookmarks or without, is a clientWatch.
type bookmarks struct {
	storage.Interface
	newObject func() runtime.Object
	interval  time.Duration
	// encoded and trim are of custom resources. What clients in this process watch is trimmed.
	encoded *encodeOnce
	trim    func(object any) (any, error)
}

// Watch implements storage.Interface.
func (b *bookmarks) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	takes := opts.Predicate.AllowWatchBookmarks
	opts.ProgressNotify = opts.ProgressNotify || takes
	// What a watch begins with is not in the order of versions, and only a watch that asks for it learns where that ends.
	initial := ptr.Deref(opts.SendInitialEvents, false)
	from, err := storage.APIObjectVersioner{}.ParseResourceVersion(opts.ResourceVersion)
	ordered := err == nil && (initial || from > 0) && !utilfeature.DefaultFeatureGate.Enabled(features.ConcurrentWatchObjectDecode)
	// Without a selector, every event goes to the client.
	if !takes || !ordered || opts.Predicate.Empty() {
		in, err := b.Interface.Watch(ctx, key, opts)
		if err != nil {
			return nil, err
		}
		w := b.clientWatch(ctx, key, in)
		go w.run()
		return w, nil
	}
	w := &selectiveWatch{newObject: b.newObject, begun: !initial}
	attributes := opts.Predicate.GetAttrs
	opts.Predicate.GetAttrs = func(o runtime.Object) (labels.Set, fields.Set, error) {
		w.look(o)
		return attributes(o)
	}
	in, err := b.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	w.clientWatch = b.clientWatch(ctx, key, in)
	go w.run(b.interval)
	return w, nil
}

func (b *bookmarks) clientWatch(ctx context.Context, key string, in watch.Interface) *clientWatch {
	w := newClientWatch(ctx, key, in, b.encoded)
	if ofCaller(ctx) {
		w.trim = b.trim
	}
	return w
}

// selectiveWatch is a watch with a selector. Its storage looks at one event after the other, and sends it, if it is for the watch, before
// it looks at the next.
type selectiveWatch struct {
	*clientWatch
	newObject func() runtime.Object

	// looked is the latest version that the storage has looked at.
	looked atomic.Uint64
	// sent is the latest version that the client knows of, begun whether it has got what it begins with.
	sent  uint64
	begun bool
}

// look is called by the storage with the object of each event, and with what it was before.
func (w *selectiveWatch) look(o runtime.Object) {
	// Only one goroutine calls it.
	if version := versionIn(o); version > w.looked.Load() {
		w.looked.Store(version)
	}
}

func versionIn(o runtime.Object) uint64 {
	accessor, err := meta.Accessor(o)
	if err != nil {
		return 0
	}
	version, err := storage.APIObjectVersioner{}.ParseResourceVersion(accessor.GetResourceVersion())
	if err != nil {
		return 0
	}
	return version
}

func (w *selectiveWatch) run(interval time.Duration) {
	defer w.end()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case event, ok := <-w.in.ResultChan():
			if !ok || !w.send(event) {
				return
			}
		case <-ticker.C:
			if !w.bookmark() {
				return
			}
		case <-w.stopped:
			return
		case <-w.ctx.Done():
			return
		}
	}
}

// bookmark sends how far the watch is, if the client does not know. It returns false when the watch ends.
func (w *selectiveWatch) bookmark() bool {
	// All events before this one were sent, or were not for the watch. It may still be on its way itself.
	before := w.looked.Load()
	for more := true; more; {
		select {
		case event, ok := <-w.in.ResultChan():
			if !ok || !w.send(event) {
				return false
			}
		default:
			more = false
		}
	}
	if !w.begun || before == 0 || before-1 <= w.sent {
		return true
	}
	object := w.newObject()
	if err := (storage.APIObjectVersioner{}).UpdateObject(object, before-1); err != nil {
		return true // as without a bookmark
	}
	return w.send(watch.Event{Type: watch.Bookmark, Object: object})
}

// send returns false when the watch ends.
func (w *selectiveWatch) send(event watch.Event) bool {
	version := versionIn(event.Object) // the object is the client's then
	begins := event.Type == watch.Bookmark && endsInitialEvents(event.Object)
	if !w.clientWatch.send(event) {
		return false
	}
	w.sent, w.begun = max(w.sent, version), w.begun || begins
	return true
}

func endsInitialEvents(o runtime.Object) bool {
	ends, err := storage.HasInitialEventsEndBookmarkAnnotation(o)
	return err == nil && ends
}
