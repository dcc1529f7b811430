package gateway

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// planEvent is an event of a watch. Secret is nil for a bookmark.
type planEvent struct {
	Type    string
	Secret  *corev1.Secret
	Version uint64
	// InitialEnd marks the bookmark that ends a watch's initial events.
	InitialEnd bool
}

// planWatcher receives the events of one Secret. Its channel is closed when the reader is too slow.
type planWatcher struct {
	events chan planEvent
	key    types.NamespacedName
	start  uint64
}

// watchBuffer is how many events a reader may be behind.
const watchBuffer = 8

var (
	// errTooOld tells that a watch cannot continue from where it wants to.
	errTooOld = errors.New("too old resource version")
	// errAhead tells that a watch wants to continue from a version that this store has not seen.
	errAhead = errors.New("resource version is ahead of the cache")
)

// watch returns the events that somebody who has seen everything up to version has missed, and a watcher for those to come. Version 0
// means that nothing was seen: the Secret, if there is one, is then the first event. The watcher's start is the version that somebody
// has seen everything up to who was told of what was missed.
func (p *planStore) watch(key types.NamespacedName, version uint64) (missed []planEvent, w *planWatcher, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	current, exists := p.objects[key]
	seen := max(p.latest, current.version)
	switch {
	case version > seen:
		return nil, nil, errAhead
	case exists && version == 0:
		missed = []planEvent{{Type: "ADDED", Secret: current.secret, Version: current.version}}
	case exists && current.version > version:
		missed = []planEvent{{Type: "MODIFIED", Secret: current.secret, Version: current.version}}
	case exists, version == 0:
	case p.gone[key].version > version:
		missed = []planEvent{{Type: "DELETED", Secret: p.gone[key].secret, Version: p.gone[key].version}}
	case version < p.since:
		return nil, nil, errTooOld
	}
	w = &planWatcher{events: make(chan planEvent, watchBuffer), key: key, start: seen}
	if p.watchers[key] == nil {
		p.watchers[key] = map[*planWatcher]struct{}{}
	}
	p.watchers[key][w] = struct{}{}
	return missed, w, nil
}

// unwatch ends a watcher that its reader no longer reads.
func (p *planStore) unwatch(w *planWatcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(w)
}

// quiet returns how far the store has seen everything, and whether the watcher has been sent all of it.
func (p *planStore) quiet(w *planWatcher) (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest, len(w.events) == 0
}

// tell sends an event to all who watch; the lock is held.
func (p *planStore) tell(key types.NamespacedName, event planEvent) {
	for w := range p.watchers[key] {
		select {
		case w.events <- event:
		default:
			p.drop(w)
		}
	}
}

// drop ends a watcher; its reader sees the channel closed.
func (p *planStore) drop(w *planWatcher) {
	if _, found := p.watchers[w.key][w]; !found {
		return
	}
	delete(p.watchers[w.key], w)
	if len(p.watchers[w.key]) == 0 {
		delete(p.watchers, w.key)
	}
	close(w.events)
}
