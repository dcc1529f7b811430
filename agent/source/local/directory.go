// Package local takes plans from files in a directory of the machine and reports beside them: the status of <name>.plan is in <name>.pos.
// Each file is a source.Source of its own. The package applies nothing, and trusts no file that anyone but root and the agent's user can
// write.
package local

import (
	"context"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/drover-dev/drover/agent/host"
)

const (
	// debounce is for how long nothing must change before the directory is read, so that whoever writes a file can finish it; maxDebounce is
	// after how long it is read in any case.
	debounce    = 200 * time.Millisecond
	maxDebounce = 3 * time.Second
	// pollInterval is how often the directory is read without an event, for what inotify cannot tell: a file system that has become
	// readable, or a machine without free watches.
	pollInterval = 15 * time.Second
	// emptyGrace is for how long an empty directory may be one in which a file system is still to be mounted.
	emptyGrace = 5 * time.Minute
)

// Options of a Directory; all but WorkDirectory, StopProgram and Notify are required.
type Options struct {
	// Path is the directory of plans. It is created with mode 0700 when it is missing.
	Path string
	// StateDirectory has a directory for the engine of each plan, which is removed with the plan.
	StateDirectory string
	// WorkDirectory has a directory for the work of each plan, which is removed with the plan, too; empty removes none.
	WorkDirectory string
	// Host writes position files and removes state.
	Host host.Host
	// Log receives what is added, removed and invalid.
	Log *slog.Logger
	// StopProgram terminates what the engine of a plan has left running in an earlier process, given the name of the plan and the state
	// directory of its engine, which does not run. It is called before the state of a plan that is gone is removed, and for plans that are
	// skipped; nil where no program outlives the agent.
	StopProgram func(plan, stateDirectory string) error
	// Notify is called whenever the directory has been read; nil for nobody.
	Notify func()
}

// Directory runs the plans of a directory.
type Directory struct {
	Options
	// plans are those that are neither missing nor skipped, by name. They belong to Run.
	plans map[string]*Plan
	// queue is signalled when a plan may have finished, so that the next one can start.
	queue chan struct{}
	// problem is why the directory could not be read, as it was logged last.
	problem string
	// orphansRemoved is set when the state of plans that disappeared while the agent did not run has been removed.
	orphansRemoved bool
	// emptySince is since when the directory is empty, if no plan was seen in it yet.
	emptySince time.Time

	newWatcher   func() (*fsnotify.Watcher, error)
	warnedWatch  bool
	pollInterval time.Duration
	now          func() time.Time
}

// New makes a Directory; Run starts it.
func New(options Options) *Directory {
	options.Path = filepath.Clean(options.Path)
	if options.Notify == nil {
		options.Notify = func() {}
	}
	if options.StopProgram == nil {
		options.StopProgram = func(string, string) error { return nil }
	}
	return &Directory{Options: options, plans: map[string]*Plan{}, queue: make(chan struct{}, 1),
		newWatcher: fsnotify.NewWatcher, pollInterval: pollInterval, now: time.Now}
}

// Run calls start for each plan, in a goroutine of its own, until ctx is done. The context of start ends with the cause source.ErrRemoved
// when the plan is removed or skipped, or with the cause of ctx; start must return then.
func (d *Directory) Run(ctx context.Context, start func(context.Context, *Plan)) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	watch := func(string) error { return nil }
	var events chan fsnotify.Event
	var errs chan error
	if w, err := d.newWatcher(); err != nil {
		d.warnWatch(err)
	} else {
		defer w.Close()
		watch, events, errs = w.Add, w.Events, w.Errors
	}
	poll := time.NewTicker(d.pollInterval)
	defer poll.Stop()
	for {
		d.reload(watch)
		d.Notify()
		d.schedule(ctx, start, &running)
		for reload := false; !reload; {
			select {
			case <-ctx.Done():
				return
			case <-d.queue:
				d.schedule(ctx, start, &running)
			case event := <-events:
				if reload = !isHidden(event.Name); reload {
					waitForQuiet(ctx, events)
				}
			case err := <-errs: // events were lost
				d.Log.Debug("Watching failed, reading again", "error", err)
				reload = true
			case <-poll.C:
				reload = true
			}
		}
	}
}

// waitForQuiet returns when there was no event for debounce, or after maxDebounce.
func waitForQuiet(ctx context.Context, events <-chan fsnotify.Event) {
	deadline := time.After(maxDebounce)
	for {
		select {
		case <-events:
		case <-ctx.Done():
			return
		case <-deadline:
			return
		case <-time.After(debounce):
			return
		}
	}
}

func isHidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

func (d *Directory) warnWatch(err error) {
	if err != nil && !d.warnedWatch {
		d.Log.Warn("Watching the directory of local plans failed, polling it instead; raise fs.inotify.max_user_watches and "+
			"fs.inotify.max_user_instances", "error", err, "interval", d.pollInterval)
		d.warnedWatch = true
	}
}

// reload reads the directory: it adds new plans, reads their files, and stops those that are removed or skipped.
func (d *Directory) reload(watch func(dir string) error) {
	found, err := d.scan(watch)
	d.logProblem(err)
	for name, skipped := range found {
		if d.plans[name] == nil && !skipped {
			d.plans[name] = newPlan(d, name)
		}
	}
	for name, plan := range d.plans {
		skipped, exists := found[name]
		switch {
		case exists && !skipped:
			plan.refresh()
		case exists:
			plan.stop()
			delete(d.plans, name)
			d.stopProgram(name, plan.StateDirectory())
		case err == nil: // what could not be read is not taken for removed
			d.Log.Info("Local plan removed", "plan", name)
			plan.stop()
			delete(d.plans, name)
			d.removeState(name, plan.StateDirectory())
		}
	}
	if err == nil && !d.orphansRemoved && !d.mayBeMounted(found) {
		d.removeOrphanedState(found)
		d.orphansRemoved = true
	}
}

// mayBeMounted reports whether the directory may be a mount point that is not mounted yet: no plan was seen in it since the start, which
// was less than emptyGrace ago.
func (d *Directory) mayBeMounted(found map[string]bool) bool {
	if len(found) > 0 {
		return false
	}
	now := d.now()
	if d.emptySince.IsZero() {
		d.emptySince = now
	}
	return now.Sub(d.emptySince) < emptyGrace
}

// logProblem logs why the directory cannot be read, once.
func (d *Directory) logProblem(err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != d.problem {
		d.Log.Error("Reading the directory of local plans failed", "error", err)
	}
	d.problem = problem
}

// schedule delivers the content of each plan's files to its engine, and starts those that are new. Plans that are to be applied are
// delivered in the order of their names: the next one when the one before has succeeded, or has failed once. All others need not wait.
func (d *Directory) schedule(ctx context.Context, start func(context.Context, *Plan), running *sync.WaitGroup) {
	busy := false
	for _, name := range slices.Sorted(maps.Keys(d.plans)) {
		plan := d.plans[name]
		finished := plan.finished()
		if busy && !finished {
			continue
		}
		busy = busy || !finished
		plan.deliver()
		if plan.cancel == nil {
			plan.start(ctx, start, running)
		}
	}
}

// removeOrphanedState removes the state of plans that disappeared while the agent did not run, and stops what is left of those that are
// skipped since.
func (d *Directory) removeOrphanedState(found map[string]bool) {
	names, err := d.Host.ReadDir(d.StateDirectory)
	if err != nil {
		d.Log.Warn("Reading the state of local plans failed", "error", err)
	}
	for _, dir := range names {
		name, err := url.PathUnescape(dir)
		skipped, exists := found[name]
		switch path := filepath.Join(d.StateDirectory, dir); {
		case err != nil:
		case !exists:
			d.removeState(name, path)
		case skipped:
			d.stopProgram(name, path)
		}
	}
}

func (d *Directory) stopProgram(plan, dir string) {
	if err := d.StopProgram(plan, dir); err != nil {
		d.Log.Warn("Stopping the program of a local plan failed", "plan", plan, "error", err)
	}
}

func (d *Directory) removeState(plan, dir string) {
	d.stopProgram(plan, dir)
	// First, since without its state nobody knows the plan any more.
	if d.WorkDirectory != "" {
		if err := d.Host.RemoveAll(filepath.Join(d.WorkDirectory, url.PathEscape(plan))); err != nil {
			d.Log.Warn("Removing the work of a local plan failed", "error", err)
		}
	}
	if err := d.Host.RemoveAll(dir); err != nil {
		d.Log.Warn("Removing the state of a local plan failed", "error", err)
	}
}

func (d *Directory) signalQueue() {
	select {
	case d.queue <- struct{}{}:
	default:
	}
}
