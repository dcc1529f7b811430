package report

import (
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

const (
	// progressAfter is how long a step must take to be reported.
	progressAfter = 5 * time.Second
	// progressInterval is the shortest time between two reports of progress.
	progressInterval = 15 * time.Second
)

// Progress knows what an attempt is doing and reports steps that take long.
type Progress struct {
	reporter *Reporter
	plan     source.PlanID
	onChange func(*plans.Progress)
	// stepped is signaled when a step begins.
	stepped chan struct{}

	mu      sync.Mutex
	current plans.Progress
}

// NewProgress is for one attempt. onChange is called with each change, also those that are not reported, and with nil at the end; it must
// not keep the value.
func (r *Reporter) NewProgress(id journal.AttemptID, onChange func(*plans.Progress)) *Progress {
	return &Progress{reporter: r, plan: id.PlanID(), onChange: onChange, stepped: make(chan struct{}, 1),
		current: plans.Progress{Checksum: id.Checksum, Attempt: id.Attempt}}
}

// Step says that a step begins: the index-th of total, named name.
func (p *Progress) Step(phase plans.ProgressPhase, index, total int, name string) {
	p.update(func(now *plans.Progress) {
		*now = plans.Progress{Checksum: now.Checksum, Attempt: now.Attempt, Phase: phase, Index: index, Total: total, Name: name,
			Since: time.Now()}
	})
	signal(p.stepped)
}

// Pulled says how many bytes of the image have come; total is 0 while it is not known.
func (p *Progress) Pulled(done, total int64) {
	p.update(func(now *plans.Progress) { now.PulledBytes, now.TotalBytes = done, total })
}

// Output says how many bytes the program has written.
func (p *Progress) Output(bytes int64) {
	p.update(func(now *plans.Progress) { now.OutputBytes = bytes })
}

func (p *Progress) update(change func(now *plans.Progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.current)
	p.onChange(&p.current)
}

func (p *Progress) get() plans.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Start begins to report; stop ends that and waits for it.
func (p *Progress) Start() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.run(end)
	}()
	return func() {
		close(end)
		<-ended
		p.onChange(nil)
	}
}

// run reports a step when it has taken progressAfter, and what has changed since once in progressInterval.
func (p *Progress) run(end <-chan struct{}) {
	timer := time.NewTimer(progressInterval)
	defer timer.Stop()
	var lastTime time.Time
	var last plans.Progress
	for {
		select {
		case <-end:
			return
		case <-p.stepped:
			timer.Reset(max(progressAfter, time.Until(lastTime.Add(progressInterval))))
			continue
		case <-timer.C:
		}
		timer.Reset(progressInterval) // byte counts change without a signal
		if now := p.get(); now != last && !now.Since.IsZero() {
			lastTime, last = time.Now(), now
			now.Since = now.Since.UTC().Truncate(time.Second)
			p.reporter.set(p.plan, partProgress, func(s *plans.Status, _ int) { s.Progress = &now })
		}
	}
}
