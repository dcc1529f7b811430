package machines

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Progress notes when machines have reached a stage for the first time.
type Progress struct {
	mu      sync.Mutex
	stages  map[string]*stage
	changed chan struct{}
}

// stage is who has reached a stage, in order.
type stage struct {
	machines map[string]bool
	times    []time.Time
}

// NewProgress is of machines that have reached nothing.
func NewProgress() *Progress {
	return &Progress{stages: map[string]*stage{}, changed: make(chan struct{})}
}

// Reach notes that a machine has reached a stage.
func (p *Progress) Reach(name, machine string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stage(name)
	if !s.machines[machine] {
		s.machines[machine] = true
		s.times = append(s.times, time.Now())
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// Has is whether a machine has reached a stage.
func (p *Progress) Has(name, machine string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage(name).machines[machine]
}

// Await waits until a number of machines have reached a stage, and returns how long after a time the last of them did.
func (p *Progress) Await(ctx context.Context, name string, machines int, since time.Time) (time.Duration, error) {
	for {
		p.mu.Lock()
		times, changed := p.stage(name).times, p.changed
		p.mu.Unlock()
		if len(times) >= machines {
			return times[machines-1].Sub(since), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for %d machines to be %s: %d are: %w", machines, name, len(times), context.Cause(ctx))
		}
	}
}

// stage is called with mu held.
func (p *Progress) stage(name string) *stage {
	if p.stages[name] == nil {
		p.stages[name] = &stage{machines: map[string]bool{}}
	}
	return p.stages[name]
}
