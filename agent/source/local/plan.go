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
	"time"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// Plan is one plan file. It is an engine.Source whose reports go into the position file beside it.
type Plan struct {
	directory *Directory
	name      string
	updates   chan engine.Snapshot
	// read reads a file below the folder of plans.
	read func(relative string) ([]byte, error)

	// cancel and ended are of the engine; the Directory's loop alone uses them.
	cancel context.CancelCauseFunc
	ended  chan struct{}

	mu sync.Mutex
	// raw is the newest content that is a plan, position the content of the position file and status what that says.
	raw      []byte
	position plans.SecretData
	status   plans.Status
	// said is the position file as it was read or written last.
	said []byte
	// fresh tells that the engine has not been given all this yet.
	fresh bool
	// problem is why the file cannot be used, since when. It is changed with both locks, so that who only asks waits for no disk: mu is held
	// while files are read and written.
	told         sync.Mutex
	problem      error
	problemSince time.Time
	// stuck tells that the position file could not be written.
	stuck bool
}

var (
	_ engine.Source       = (*Plan)(nil)
	_ engine.Reachability = (*Plan)(nil)
)

func newPlan(d *Directory, name string) *Plan {
	p := &Plan{directory: d, name: name, updates: make(chan engine.Snapshot, 1)}
	p.read = func(relative string) ([]byte, error) { return readTrusted(d.Path, relative) }
	return p
}

// Name is the path below the folder of plans, without ".plan".
func (p *Plan) Name() string {
	return p.name
}

// StateDirectory is for the engine's journal.
func (p *Plan) StateDirectory() string {
	return filepath.Join(p.directory.StateDirectory, p.folder())
}

// folder is the name as that of one folder.
func (p *Plan) folder() string {
	return url.PathEscape(p.name)
}

// Unreachable implements engine.Reachability: why the file cannot be used, and since when.
func (p *Plan) Unreachable() (reason string, since time.Time) {
	p.told.Lock()
	defer p.told.Unlock()
	if p.problem == nil {
		return "", time.Time{}
	}
	return p.problem.Error(), p.problemSince
}

// found notes, with the lock, what is wrong with the files.
func (p *Plan) found(problem error, since time.Time) {
	p.told.Lock()
	defer p.told.Unlock()
	p.problem, p.problemSince = problem, since
}

// refresh reads the two files and tells whether they could be read. Content that is no plan changes nothing but the problem: it may be half of
// a plan that is being written.
func (p *Plan) refresh() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reread()
	var content *contentError
	return p.problem == nil || errors.As(p.problem, &content)
}

// reread needs the lock.
func (p *Plan) reread() {
	err := p.readPlan()
	if err == nil {
		err = p.readPosition()
	}
	switch {
	case err == nil:
		p.found(nil, time.Time{})
	case p.problem == nil || p.problem.Error() != err.Error():
		p.directory.Log.Error("A local plan is not applied", "plan", p.name, "error", err)
		p.found(err, time.Now())
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
		return &contentError{checksum: plans.Checksum(raw), err: err}
	}
	if string(raw) != string(p.raw) {
		p.raw, p.fresh = raw, true
	}
	return nil
}

// contentError is a file that is no plan. As it names the content, each content is logged once.
type contentError struct {
	checksum string
	err      error
}

func (e *contentError) Error() string {
	return fmt.Sprintf("the file with checksum %s is no plan: %v", e.checksum[:12], e.err)
}

func (e *contentError) Unwrap() error { return e.err }

// readPosition needs the lock.
func (p *Plan) readPosition() error {
	raw, err := p.read(p.name + positionSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if p.position != nil && bytes.Equal(raw, p.said) {
		return nil
	}
	p.said = raw
	position, status, err := decodePosition(raw)
	if err != nil {
		p.directory.Log.Warn("A position file cannot be read as a whole, it will be replaced", "plan", p.name, "error", err)
	}
	if p.position == nil || !equal(position, p.position) {
		status.Progress = p.status.Progress
		p.position, p.status, p.fresh = position, status, true
	}
	return nil
}

// settled tells whether nothing is left to be done for the plan before the next one has its turn.
func (p *Plan) settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem != nil || p.stuck {
		return true
	}
	checksum := plans.Checksum(p.raw)
	return p.status.AppliedChecksum == checksum || p.status.FailedChecksum == checksum
}

// release gives the engine what the files hold.
func (p *Plan) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem != nil || len(p.raw) == 0 || !p.fresh {
		return
	}
	p.publish()
}

// publish needs the lock.
func (p *Plan) publish() {
	p.fresh = false
	select {
	case <-p.updates:
	default:
	}
	p.updates <- p.snapshot()
}

// snapshot needs the lock.
func (p *Plan) snapshot() engine.Snapshot {
	delivery := plans.DecodeDelivery(nil)
	delivery.Plan = p.raw
	return engine.Snapshot{UID: "local/" + p.name, Delivery: delivery, Status: p.status, Local: true}
}

// Updates implements engine.Source.
func (p *Plan) Updates() <-chan engine.Snapshot {
	return p.updates
}

// Get implements engine.Source. While the file is no plan, nothing is begun.
func (p *Plan) Get(context.Context) (engine.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reread(); p.problem != nil {
		return engine.Snapshot{}, p.problem
	}
	return p.snapshot(), nil
}

// Update implements engine.Source.
func (p *Plan) Update(_ context.Context, _, checksum string, change func(*plans.Status)) (engine.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.raw) == 0 || plans.Checksum(p.raw) != checksum {
		return engine.Snapshot{}, engine.ErrSuperseded
	}
	status := p.status
	change(&status)
	position, err := p.write(status)
	if p.stuck = err != nil; err != nil {
		signal(p.directory.turn)
		return engine.Snapshot{}, err
	}
	p.status = status
	if !equal(position, p.position) {
		p.position = position
		p.publish()
		signal(p.directory.turn)
	}
	return p.snapshot(), nil
}

// write writes the position file, if it says something else than before. What the agent does at the moment is not worth a write.
func (p *Plan) write(status plans.Status) (plans.SecretData, error) {
	status.Progress = nil
	position, raw, err := encodePosition(p.position, status)
	if err != nil || equal(position, p.position) {
		return position, err
	}
	path := filepath.Join(p.directory.Path, p.name+positionSuffix)
	if err := p.directory.Host.WriteFile(path, raw, host.Private(0o600)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	p.said = raw
	return position, nil
}
