package inflight

import (
	"context"
	"slices"
	"sync"
)

// Newest bounds how many requests of each key go on at the same time by ending the oldest ones. It is for requests without an end, of which
// a client whose connection is dead begins another one before the server notices.
type Newest struct {
	share int

	mu sync.Mutex
	// byKey has the requests of each key, the oldest first; keys that have none are not in it. All but the newest ones are ending.
	byKey map[string][]*ongoing
}

// ongoing is a request that goes on, and what ends it.
type ongoing struct{ end context.CancelFunc }

// NewNewest returns a Newest of which each key may have share requests, and as many that are ending.
func NewNewest(share int) *Newest {
	return &Newest{share: share, byKey: map[string][]*ongoing{}}
}

// Acquire lets a request of key begin and never waits. The context ends with ctx, or when there are too many newer requests of the key. ok
// is false if as many are still ending as may go on. The caller must call release once.
func (n *Newest) Acquire(ctx context.Context, key string) (_ context.Context, release func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.byKey[key]
	if len(all) >= 2*n.share {
		return nil, nil, false
	}
	ctx, end := context.WithCancel(ctx)
	added := &ongoing{end}
	all = append(all, added)
	n.byKey[key] = all
	for _, old := range all[:max(0, len(all)-n.share)] {
		old.end()
	}
	return ctx, func() {
		end()
		n.mu.Lock()
		defer n.mu.Unlock()
		left := slices.DeleteFunc(n.byKey[key], func(o *ongoing) bool { return o == added })
		if n.byKey[key] = left; len(left) == 0 {
			delete(n.byKey, key)
		}
	}, true
}
