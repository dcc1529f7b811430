package image

import (
	"sync"
	"time"
)

// progressInterval is how often progress is reported at most.
const progressInterval = 200 * time.Millisecond

// progress adds up the bytes of several layers. report is called with the lock held.
type progress struct {
	report func(done, total int64)

	mu          sync.Mutex
	done, total int64
	reported    time.Time
}

func newProgress(report func(done, total int64)) *progress {
	if report == nil {
		report = func(int64, int64) {}
	}
	return &progress{report: report}
}

// start sets the number of bytes to come, and starts over at 0.
func (p *progress) start(total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total, p.reported = 0, total, time.Now()
	p.report(0, total)
}

// add counts bytes; n is negative where a download starts over.
func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if time.Since(p.reported) >= progressInterval {
		p.reported = time.Now()
		p.report(p.done, p.total)
	}
}

func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report(p.total, p.total)
}
