package secretcache

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PlanEvent is an event of a watch.
type PlanEvent struct {
	// Type is a watch.EventType: ADDED, MODIFIED, DELETED or BOOKMARK.
	Type string
	// Secret is nil for a bookmark.
	Secret *corev1.Secret
	// Version is the resourceVersion of the event.
	Version uint64
	// InitialEnd marks the bookmark that ends a watch's initial events.
	InitialEnd bool
}

// PlanWatcher receives the events of one Secret.
type PlanWatcher struct {
	// Start is the resourceVersion up to which a reader has seen everything who was sent the missed events.
	Start  uint64
	key    types.NamespacedName
	events chan PlanEvent
}

// Events is closed if the reader is too slow.
func (w *PlanWatcher) Events() <-chan PlanEvent { return w.events }

const (
	// watchBuffer is how many events a reader may be behind.
	watchBuffer = 8
	// maxVersionsBehind is how many versions a watch may continue from behind the store, and a report may be behind it. A restore of the API's
	// storage raises its revision by more (1,000,000,000, see https://etcd.io/docs/v3.6/op-guide/recovery and "hub backup restore"), and the
	// version that a machine has may be one that the restore has undone.
	maxVersionsBehind = 500_000_000
)

var (
	// ErrTooOld is returned for a watch that continues from before the deletions that the store knows, or from before a restore of the API's
	// storage.
	ErrTooOld = errors.New("too old resource version")
	// ErrAhead is returned for a watch that continues from a version that this store has not seen yet.
	ErrAhead = errors.New("resource version is ahead of the cache")
)

// Watch returns the events since version that a reader has missed, and a watcher for those to come. Version 0 means that nothing was
// seen: the Secret, if it exists, is then the first event.
func (p *PlanStore) Watch(key types.NamespacedName, version uint64) (missed []PlanEvent, w *PlanWatcher, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	current, exists := p.objects[key]
	seen := max(p.latest, current.version)
	switch {
	case version > seen:
		return nil, nil, ErrAhead
	case version > 0 && seen-version > maxVersionsBehind:
		return nil, nil, ErrTooOld
	case exists && version == 0:
		missed = []PlanEvent{{Type: "ADDED", Secret: current.secret, Version: current.version}}
	case exists && current.version > version:
		missed = []PlanEvent{{Type: "MODIFIED", Secret: current.secret, Version: current.version}}
	case exists, version == 0:
	case p.deleted[key].version > version:
		missed = []PlanEvent{{Type: "DELETED", Secret: p.deleted[key].secret, Version: p.deleted[key].version}}
	case version < p.completeSince:
		return nil, nil, ErrTooOld
	}
	w = &PlanWatcher{Start: seen, key: key, events: make(chan PlanEvent, watchBuffer)}
	if p.watchers[key] == nil {
		p.watchers[key] = map[*PlanWatcher]struct{}{}
	}
	p.watchers[key][w] = struct{}{}
	return missed, w, nil
}

// Unwatch ends a watcher that its reader no longer reads.
func (p *PlanStore) Unwatch(w *PlanWatcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(w)
}

// Delivered returns the resourceVersion up to which the store has seen everything, and whether the watcher has been sent all of it.
func (p *PlanStore) Delivered(w *PlanWatcher) (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest, len(w.events) == 0
}

// send sends an event to all watchers of a Secret; the lock is held.
func (p *PlanStore) send(key types.NamespacedName, event PlanEvent) {
	for w := range p.watchers[key] {
		select {
		case w.events <- event:
		default:
			p.drop(w)
		}
	}
}

// drop ends a watcher; its reader sees the channel closed.
func (p *PlanStore) drop(w *PlanWatcher) {
	if _, found := p.watchers[w.key][w]; !found {
		return
	}
	delete(p.watchers[w.key], w)
	if len(p.watchers[w.key]) == 0 {
		delete(p.watchers, w.key)
	}
	close(w.events)
}
