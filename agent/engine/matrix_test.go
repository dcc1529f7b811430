package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

// point is a moment at which the world stops: before or just after the n-th durable effect on the machine, before or just after the n-th
// write that the hub takes, or in the middle of the n-th run of a program.
type point struct {
	at    where
	n     int
	after bool
}

type where string

const (
	atEffect where = "effect"
	atReport where = "report"
	inRun    where = "run"
)

var everywhere = []point{{at: atEffect}, {at: atEffect, after: true}, {at: atReport}, {at: atReport, after: true}, {at: inRun}}

func (p point) String() string {
	when := "before"
	switch {
	case p.at == inRun:
		when = "in the middle of"
	case p.after:
		when = "after"
	}
	return fmt.Sprintf("%s %s %d", when, p.at, p.n)
}

// ending is what a machine and its hub are like in the end, without times.
type ending struct {
	Files  map[string]fake.File
	Kept   []string
	Work   []string
	Status plans.Status
	// Runs are the instructions that ran to their end, in their order, with their attempts.
	Runs []string
	Ends []string
}

// TestCrashMatrix stops the world at every point of every plan of the corpus, and at pairs of points of some, and starts it again. The end
// must be that of the plan that nothing has interrupted: files, reports, attempt numbers, and each instruction run to its end exactly as
// often.
func TestCrashMatrix(t *testing.T) {
	var total atomic.Int64
	started := time.Now()
	t.Cleanup(func() {
		t.Logf("crash matrix: %d plans, %d points, every end equals the uninterrupted one: %t (%s)", len(corpus()), total.Load(), !t.Failed(),
			time.Since(started).Round(time.Millisecond))
	})
	for _, c := range corpus() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want, _ := c.simulate(t)
			if t.Failed() {
				t.Fatal("it does not even come to its end without a crash")
			}
			points := 0
			for _, p := range everywhere {
				for p.n = 1; !t.Failed() && c.compare(t, want, p); p.n++ {
					points++
					if c.twice && p.at == atEffect {
						c.compare(t, want, p, point{at: atEffect, n: 1 + p.n%4, after: p.n%2 == 0})
						points++
					}
				}
			}
			t.Logf("%d points", points)
			total.Add(int64(points))
		})
	}
}

// compare reports whether the first point was reached.
func (c matrixCase) compare(t *testing.T, want ending, points ...point) bool {
	t.Helper()
	got, reached := c.simulate(t, points...)
	if diff := cmp.Diff(want, got); diff != "" || t.Failed() {
		t.Errorf("stopped %v, the end differs (-uninterrupted +interrupted):\n%s", points, diff)
	}
	return reached > 0
}

// simulate plays one case and tells how many of the points were reached.
func (c matrixCase) simulate(t *testing.T, points ...point) (end ending, reached int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &play{world: newWorld(t), t: t}
		if c.setup != nil {
			c.setup(p)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.script(p)
		}()
		for _, at := range points {
			off := make(chan struct{})
			p.stopAt(at, func() { close(off) })
			p.start()
			select {
			case <-off:
			case <-over:
			}
			synctest.Wait()
			p.disarm()
			stopped := p.host.Stopped()
			p.stop()
			if !stopped {
				break
			}
			reached++
			time.Sleep(time.Second)
			p.host.Restart()
		}
		p.start()
		<-over
		p.waitAMinute()
		p.stop()
		if end = p.ending(); c.relax != nil {
			c.relax(&end)
		}
	})
	return end, reached
}

// play is a world in which a case is played.
type play struct {
	*world
	t *testing.T
}

// stopAt arms a point.
func (p *play) stopAt(at point, onStop func()) {
	never := 1 << 40
	count := 0
	switch at.at {
	case atEffect:
		p.host.StopAt(at.n, at.after, onStop)
	case atReport:
		p.host.StopAt(never, false, onStop) // Off calls it
		p.secret.mu.Lock()
		defer p.secret.mu.Unlock()
		p.secret.onWrite = func(after bool) {
			if !after {
				count++
			}
			if count == at.n && after == at.after {
				p.host.PowerOff()
			}
		}
	case inRun:
		p.host.StopAt(never, false, onStop)
		p.host.OnRun(func(run.Command) {
			if count++; count == at.n {
				p.host.PowerOff()
			}
		})
	}
}

// disarm lets the world go on.
func (p *play) disarm() {
	p.secret.mu.Lock()
	p.secret.onWrite = nil
	p.secret.mu.Unlock()
	p.host.OnRun(nil)
	p.host.StopAt(1<<40, false, nil)
}

// until waits for the report to become so.
func (p *play) until(what string, is func(plans.Status) bool) {
	var seen plans.SecretData
	for range 36000 {
		// To decode a report again that is as it was would take most of the time of these tests.
		if data := p.secret.copy(); seen == nil || !maps.EqualFunc(data, seen, bytes.Equal) {
			if is(p.secret.status()) {
				return
			}
			seen = data
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Errorf("waited in vain for %s: %+v, ran %v", what, p.secret.status(), p.ran())
}

func (p *play) state(want plans.State) {
	p.until(string(want), func(s plans.Status) bool { return s.State == want })
}

// deliver delivers and waits for the outcome.
func (p *play) deliver(plan plans.Plan, maxFailures int, want plans.State) {
	p.secret.deliver(plan, maxFailures)
	p.state(want)
}

func (p *play) ending() ending {
	end := ending{Files: p.outside(), Kept: p.kept(), Status: p.secret.status()}
	slices.Sort(end.Kept)
	for path := range p.host.Files() {
		if strings.HasPrefix(path, "/agent/work/") {
			end.Work = append(end.Work, path[strings.LastIndexByte(path, '/'):])
		}
	}
	slices.Sort(end.Work)
	end.Status.LastApplyTime = time.Time{}
	for name, output := range end.Status.PeriodicOutput {
		output.LastSuccessfulRunTime, output.LastFailedRunTime = "", ""
		end.Status.PeriodicOutput[name] = output
	}
	for _, run := range p.ran() {
		if !strings.HasPrefix(run, "periodic") {
			end.Runs = append(end.Runs, run)
		}
	}
	attempts, err := p.engine.History()
	if err != nil {
		p.t.Error(err)
	}
	for _, a := range attempts {
		end.Ends = append(end.Ends, fmt.Sprintf("%d.%d %t %s", a.Number, a.Try, a.Succeeded, a.Message))
	}
	maps.DeleteFunc(end.Files, func(path string, _ fake.File) bool { return strings.HasPrefix(path, "/applied/") })
	return end
}
