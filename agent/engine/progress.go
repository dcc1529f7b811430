package engine

import (
	"sync"
	"time"

	"github.com/drover-dev/drover/plans"
)

const (
	// progressAfter is from what duration of a step on it is worth telling.
	progressAfter = 5 * time.Second
	// progressEvery is how often it is told at most.
	progressEvery = 15 * time.Second
)

// progress knows what an attempt is doing, and tells the hub now and then about a step that takes long.
type progress struct {
	engine *Engine
	target target
	// changed is signalled when a step begins.
	changed chan struct{}

	mu  sync.Mutex
	now plans.Progress
}

func newProgress(e *Engine, b begin) *progress {
	return &progress{engine: e, target: b.target(), changed: make(chan struct{}, 1), now: plans.Progress{Checksum: b.Checksum, Attempt: b.Attempt}}
}

// phase notes that a step begins.
func (p *progress) phase(phase plans.ProgressPhase, index, total int, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = plans.Progress{Checksum: p.now.Checksum, Attempt: p.now.Attempt, Phase: phase, Index: index, Total: total, Name: name,
		Since: time.Now()}
	p.engine.board.progressed(&p.now)
	signal(p.changed)
}

func (p *progress) pulled(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.PulledBytes, p.now.TotalBytes = done, total
	p.engine.board.progressed(&p.now)
}

func (p *progress) wrote(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.OutputBytes = bytes
	p.engine.board.progressed(&p.now)
}

func (p *progress) look() plans.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// start begins to tell; the function it returns ends that.
func (p *progress) start() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.tell(end)
	}()
	return func() {
		close(end)
		<-ended
		p.engine.board.progressed(nil)
	}
}

// tell waits for the moment at which there is something worth telling; steps that are over before it are never told.
func (p *progress) tell(end <-chan struct{}) {
	var last time.Time
	var told plans.Progress
	for {
		now := p.look()
		var due <-chan time.Time
		if !now.Since.IsZero() && now != told {
			wait := time.Until(now.Since.Add(progressAfter))
			if !last.IsZero() {
				wait = max(wait, time.Until(last.Add(progressEvery)))
			}
			due = time.After(wait)
		} else if now == told && !told.Since.IsZero() {
			due = time.After(progressEvery) // what a step counts changes without a signal
		}
		select {
		case <-end:
			return
		case <-p.changed:
			continue
		case <-due:
		}
		if now = p.look(); now == told || time.Since(now.Since) < progressAfter {
			continue
		}
		last, told = time.Now(), now
		now.Since = now.Since.UTC().Truncate(time.Second)
		p.engine.reporter.progressed(p.target, now)
	}
}
