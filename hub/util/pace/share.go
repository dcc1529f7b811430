package pace

import (
	"sync"
	"time"
)

// Share gives a tenth of the time to something that costs much, such as a list past the cache where it is behind: done by everybody, it
// keeps a busy hub from catching up, which it would do without. Where it is quick, nobody waits long.
type Share struct {
	mu   sync.Mutex
	next time.Time
}

const (
	// share is how many times as long as a call takes the next one comes at the earliest.
	share = 10
	// maxShareWait is how long the next call waits at most.
	maxShareWait = time.Minute
)

// Do calls f and returns 0 and its error, or, where the share is used up, how long to wait.
func (s *Share) Do(f func() error) (wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := time.Now()
	if wait := s.next.Sub(begin); wait > 0 {
		return wait, nil
	}
	err = f()
	took := time.Since(begin)
	s.next = begin.Add(took + min((share-1)*took, maxShareWait))
	return 0, err
}
