package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	hostfs "github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// Plan is one plan file. It is a source.Source whose reports go into the position file beside it.
type Plan struct {
	directory *Directory
	name      string
	updates   chan source.Snapshot
	// read reads a file below the directory of plans.
	read func(relative string) ([]byte, error)

	// cancel and stopped are of the engine. They belong to Directory.Run.
	cancel  context.CancelCauseFunc
	stopped chan struct{}

	// problem is why the files cannot be used, nil if they can. It is changed with mu only, and read without: mu is held during disk I/O.
	problem atomic.Pointer[problem]

	mu sync.Mutex
	// raw is the last valid content of the plan file, position the values of the position file, and status what those mean.
	raw      []byte
	position plans.SecretData
	status   plans.Status
	// positionFile is the position file as it was last read or written.
	positionFile []byte
	// undelivered is set when the engine has not been given all of this yet.
	undelivered bool
	// writeFailed is set when the position file could not be written.
	writeFailed bool
}

type problem struct {
	err   error
	since time.Time
}

var (
	_ source.Source       = (*Plan)(nil)
	_ source.Reachability = (*Plan)(nil)
)

func newPlan(d *Directory, name string) *Plan {
	p := &Plan{directory: d, name: name, updates: make(chan source.Snapshot, 1)}
	p.read = func(relative string) ([]byte, error) { return readTrusted(d.Path, relative) }
	return p
}

// Name returns the path below the directory of plans, without ".plan".
func (p *Plan) Name() string { return p.name }

// StateDirectory returns the directory for the engine's journal.
func (p *Plan) StateDirectory() string {
	return filepath.Join(p.directory.StateDirectory, url.PathEscape(p.name))
}

// Unreachable implements source.Reachability: it returns why the files cannot be used, and since when.
func (p *Plan) Unreachable() (reason string, since time.Time) {
	if problem := p.problem.Load(); problem != nil {
		return problem.err.Error(), problem.since
	}
	return "", time.Time{}
}

// start runs an engine for the plan.
func (p *Plan) start(ctx context.Context, engine func(context.Context, *Plan), running *sync.WaitGroup) {
	ctx, p.cancel = context.WithCancelCause(ctx)
	p.stopped = make(chan struct{})
	running.Go(func() {
		defer close(p.stopped)
		engine(ctx, p)
	})
}

// stop stops the engine of the plan and waits for it.
func (p *Plan) stop() {
	if p.cancel != nil {
		p.cancel(source.ErrRemoved)
		<-p.stopped
	}
}

// refresh reads both files. Invalid content changes nothing but the problem: it may be half of a plan that is being written.
func (p *Plan) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refreshLocked()
}

func (p *Plan) refreshLocked() {
	err := p.readPlan()
	if err == nil {
		err = p.readPosition()
	}
	if err == nil {
		p.problem.Store(nil)
		return
	}
	if known := p.problem.Load(); known == nil || known.err.Error() != err.Error() {
		p.directory.Log.Error("Local plan cannot be applied", "plan", p.name, "error", err)
		p.problem.Store(&problem{err: err, since: time.Now()})
	}
}

// readPlan needs the lock.
func (p *Plan) readPlan() error {
	raw, err := p.read(p.name + planSuffix)
	if err != nil {
		return err
	}
	plan, err := plans.Decode(raw)
	if err == nil {
		err = plan.Validate()
	}
	if err != nil {
		// The checksum makes this another problem for each content, so that each is logged once.
		return fmt.Errorf("invalid plan with checksum %s: %w", plans.Checksum(raw)[:12], err)
	}
	if !bytes.Equal(raw, p.raw) {
		p.raw, p.undelivered = raw, true
		if field := plans.UnknownField(raw); field != "" {
			p.directory.Log.Warn("Local plan has a field that this agent does not know; it has no effect", "plan", p.name, "field", field)
		}
	}
	return nil
}

// readPosition needs the lock.
func (p *Plan) readPosition() error {
	raw, err := p.read(p.name + positionSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if p.position != nil && bytes.Equal(raw, p.positionFile) {
		return nil
	}
	p.positionFile = raw
	position, status, err := decodePosition(raw)
	if err != nil {
		p.directory.Log.Warn("Decoding a position file failed, it will be replaced", "plan", p.name, "error", err)
	}
	if p.position == nil || !equal(position, p.position) {
		status.Progress = p.status.Progress
		p.position, p.status, p.undelivered = position, status, true
	}
	return nil
}

// finished reports whether nothing is left to be done for the plan before the next one starts.
func (p *Plan) finished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem.Load() != nil || p.writeFailed {
		return true
	}
	checksum := plans.Checksum(p.raw)
	if failed := p.status.FailedChecksum; failed != "" {
		return failed == checksum // what was applied before another plan failed is applied again
	}
	return p.status.AppliedChecksum == checksum
}

// deliver gives the engine what the files hold.
func (p *Plan) deliver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem.Load() == nil && len(p.raw) > 0 && p.undelivered {
		p.publish()
	}
}

// publish replaces a snapshot that the engine has not taken yet. It needs the lock.
func (p *Plan) publish() {
	p.undelivered = false
	select {
	case <-p.updates:
	default:
	}
	p.updates <- p.snapshot()
}

// snapshot needs the lock.
func (p *Plan) snapshot() source.Snapshot {
	delivery := plans.DecodeDelivery(nil)
	delivery.Plan = p.raw
	return source.Snapshot{UID: "local/" + p.name, Delivery: delivery, Status: p.status, Local: true}
}

// Updates implements source.Source.
func (p *Plan) Updates() <-chan source.Snapshot { return p.updates }

// Get implements source.Source. While the file is not a valid plan, nothing is started.
func (p *Plan) Get(context.Context) (source.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refreshLocked()
	if problem := p.problem.Load(); problem != nil {
		return source.Snapshot{}, problem.err
	}
	return p.snapshot(), nil
}

// Update implements source.Source.
func (p *Plan) Update(_ context.Context, _, checksum string, change func(*plans.Status)) (source.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.raw) == 0 || plans.Checksum(p.raw) != checksum {
		return source.Snapshot{}, source.ErrSuperseded
	}
	status := p.status
	change(&status)
	position, err := p.writePosition(status)
	if p.writeFailed = err != nil; err != nil {
		p.directory.signalQueue()
		return source.Snapshot{}, err
	}
	p.status = status
	if !equal(position, p.position) {
		p.position = position
		p.publish()
		p.directory.signalQueue()
	}
	return p.snapshot(), nil
}

// writePosition writes the position file if it changes. Progress is not worth a write.
func (p *Plan) writePosition(status plans.Status) (plans.SecretData, error) {
	status.Progress = nil
	position, raw, err := encodePosition(p.position, status)
	if err != nil || equal(position, p.position) {
		return position, err
	}
	path := filepath.Join(p.directory.Path, p.name+positionSuffix)
	if err := p.directory.Host.WriteFile(path, raw, hostfs.WithMode(0o600)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	p.positionFile = raw
	return position, nil
}
