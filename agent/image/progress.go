package image

import (
	"sync"
	"time"
)

// toldEvery is how often progress is told at most.
const toldEvery = 200 * time.Millisecond

// progress adds up what several layers report.
type progress struct {
	tell func(done, total int64)

	mu          sync.Mutex
	done, total int64
	last        time.Time
}

func newProgress(tell func(done, total int64)) *progress {
	if tell == nil {
		tell = func(int64, int64) {}
	}
	return &progress{tell: tell}
}

// expect sets how much there is in all, and begins anew.
func (p *progress) expect(total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total, p.last = 0, total, time.Now()
	p.tell(0, total)
}

func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if time.Since(p.last) >= toldEvery {
		p.last = time.Now()
		p.tell(p.done, p.total)
	}
}

// end tells that all is there.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(p.total, p.total)
}
