// Package local takes plans from files of a folder on the machine and reports beside them: for <name>.plan there is <name>.pos. Each file is
// an engine.Source of its own. The package applies nothing, and it trusts no file that anyone but the agent's user can write.
package local

import (
	"context"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
)

const (
	// calm is how long nothing may change before the folder is read: whoever writes a file is given the time to finish it. A folder that is
	// never calm is read all the same, after restless.
	calm     = 200 * time.Millisecond
	restless = 3 * time.Second
	// slowly is how often the folder is read where the kernel does not tell of changes, or where something stands in the way that it
	// does not tell of.
	slowly = 15 * time.Second
)

// Options of a Directory; all must be set.
type Options struct {
	// Path is the folder of plans. It is made when it is missing.
	Path string
	// StateDirectory is where each plan has a folder for its engine; that of a plan that is gone is removed.
	StateDirectory string
	Host           host.Host
	Log            *slog.Logger
}

// Directory is a folder of plans.
type Directory struct {
	Options
	plans map[string]*Plan
	// turn is signalled when the status of a plan has changed, so that the next one may have its turn.
	turn chan struct{}
	// told is what is wrong with the folder and was said already.
	told string
	// swept tells that what plans of earlier runs left has been removed.
	swept bool
}

// New makes a Directory; Run starts it.
func New(options Options) *Directory {
	options.Path = filepath.Clean(options.Path)
	return &Directory{Options: options, plans: map[string]*Plan{}, turn: make(chan struct{}, 1)}
}

// Run calls start for each plan, in a goroutine of its own, until ctx is done. The context of start ends with the cause engine.ErrRemoved when the
// plan is taken away, or with the cause of ctx; start must return then.
func (d *Directory) Run(ctx context.Context, start func(context.Context, *Plan)) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	w := newWatcher(d.Log)
	defer w.close()
	for {
		clean := d.look(w)
		d.Host.Notify("STATUS=Watching for local plans")
		d.giveTurns(ctx, start, &running)
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return
			case <-d.turn:
				d.giveTurns(ctx, start, &running)
			case <-w.changed:
				again = w.settle(ctx)
			case <-after(slowly, !clean || !w.complete()):
				again = true
			}
		}
	}
}

// after is a clock that does not tick where nobody needs it.
func after(d time.Duration, needed bool) <-chan time.Time {
	if !needed {
		return nil
	}
	return time.After(d)
}

// look reads the folder and tells whether all in it could be read.
func (d *Directory) look(w *watcher) bool {
	unread := false
	found, err := d.scan(w)
	d.tell(err)
	for name := range found {
		if d.plans[name] == nil {
			d.plans[name] = newPlan(d, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.plans)) {
		plan := d.plans[name]
		skipped, there := found[name]
		switch {
		case there && !skipped:
			unread = !plan.refresh() || unread
		case there:
			plan.stop()
			delete(d.plans, name)
		case err == nil: // what could not be seen is not gone
			d.Log.Info("A local plan has been removed", "plan", name)
			plan.stop()
			delete(d.plans, name)
			d.forget(plan.StateDirectory())
		}
	}
	if err == nil && !d.swept {
		d.sweep(found)
		d.swept = true
	}
	return err == nil && !unread
}

// tell logs what is wrong with the folder, once.
func (d *Directory) tell(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != d.told {
		d.Log.Error("The folder of local plans cannot be read", "error", err)
	}
	d.told = said
}

// giveTurns lets each plan go on to what its file holds. Plans that are to be applied have their turns in the order of their names: the next
// one when the former has succeeded, or has failed once. All others need no turn.
func (d *Directory) giveTurns(ctx context.Context, start func(context.Context, *Plan), running *sync.WaitGroup) {
	taken := false
	for _, name := range slices.Sorted(maps.Keys(d.plans)) {
		plan := d.plans[name]
		settled := plan.settled()
		if taken && !settled {
			continue
		}
		taken = taken || !settled
		plan.release()
		if plan.cancel == nil {
			plan.start(ctx, start, running)
		}
	}
}

// start starts the engine of a plan.
func (p *Plan) start(ctx context.Context, start func(context.Context, *Plan), running *sync.WaitGroup) {
	ctx, p.cancel = context.WithCancelCause(ctx)
	p.ended = make(chan struct{})
	running.Go(func() {
		defer close(p.ended)
		start(ctx, p)
	})
}

// stop ends the engine of a plan and waits for it.
func (p *Plan) stop() {
	if p.cancel != nil {
		p.cancel(engine.ErrRemoved)
		<-p.ended
	}
}

// sweep removes the state of plans that were taken away while the agent did not run.
func (d *Directory) sweep(found map[string]bool) {
	names, err := d.Host.ReadDir(d.StateDirectory)
	if err != nil {
		d.Log.Warn("The state of local plans cannot be read", "error", err)
	}
	for _, folder := range names {
		name, err := url.PathUnescape(folder)
		if _, there := found[name]; err == nil && !there {
			d.forget(filepath.Join(d.StateDirectory, folder))
		}
	}
}

func (d *Directory) forget(folder string) {
	if err := d.Host.RemoveAll(folder); err != nil {
		d.Log.Warn("The state of a local plan cannot be removed", "error", err)
	}
}
