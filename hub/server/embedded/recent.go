package embedded

import (
	"sync"
	"time"
)

const (
	// recentBytes is how much of the last writes of a kind is held in each of two generations, in bytes of what was written.
	recentBytes = 1 << 20

	// recentFor is how long after the last write of a kind all of that is dropped.
	recentFor = 10 * time.Second
)

// recent has values for what was written lately of one kind.
type recent[V any] struct {
	mu                 sync.Mutex
	current, previous  map[string]V // by what was written
	currentBytes       int
	dropAfterLastWrite *time.Timer
	// most is how many values are held in each generation; 0 does not limit it.
	most int
}

func newRecent[V any]() *recent[V] {
	r := &recent[V]{}
	r.dropAfterLastWrite = time.AfterFunc(recentFor, r.drop)
	return r
}

func (r *recent[V]) hold(written string, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holdLocked(written, value)
}

func (r *recent[V]) holdLocked(written string, value V) {
	if r.current == nil || r.currentBytes+len(written) > recentBytes || r.most > 0 && len(r.current) >= r.most {
		r.current, r.previous, r.currentBytes = map[string]V{}, r.current, 0
	}
	r.current[written] = value
	r.currentBytes += len(written)
	r.dropAfterLastWrite.Reset(recentFor)
}

// grew counts the bytes by which a value has grown that is held.
func (r *recent[V]) grew(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.currentBytes += bytes
}

func (r *recent[V]) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.previous, r.currentBytes = nil, nil, 0
}

func (r *recent[V]) held(written []byte) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, ok := r.current[string(written)]; ok {
		return found, true
	}
	found, ok := r.previous[string(written)]
	return found, ok
}

// heldOr returns what is held for what was written, and holds another value if nothing is.
func (r *recent[V]) heldOr(written string, other func() V) V {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, generation := range []map[string]V{r.current, r.previous} {
		if found, ok := generation[written]; ok {
			return found
		}
	}
	value := other()
	r.holdLocked(written, value)
	return value
}
