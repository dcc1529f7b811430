// Package upgrade replaces the binary of the agent by one that the hub hands out. It verifies signature and checksum, waits until no plan
// is being applied, and replaces the binary only after a timer of systemd has been started that brings the previous one back, with that
// binary itself, unless the new one reaches the hub in time. A power cut at any moment leaves an agent that can run. When an upgrade is
// due is up to the hub; what a plan does is not this package's concern.
package upgrade

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/plans"
)

const (
	firstRetry, longestRetry = 5 * time.Second, 5 * time.Minute
	// maxInterruptions is how often the replacement of the binary may be interrupted before that counts as a failure.
	maxInterruptions = 3
)

// Source is where requests for upgrades come from; remote.Source documents the methods.
type Source interface {
	UpgradeChanged() <-chan struct{}
	Upgrade() (raw []byte, machine string, ok bool)
	ReportAgent(ctx context.Context, status plans.AgentStatus) error
	DownloadAgent(ctx context.Context, arch string) (io.ReadCloser, error)
	SigningKey() (ed25519.PublicKey, error)
}

// Options of a Manager. All fields must be set, but for PackageMarker.
type Options struct {
	Source Source
	Host   host.Host
	Log    *slog.Logger
	// Gate is held while a plan is applied.
	Gate *semaphore.Weighted
	// Version and Arch (GOARCH) are those of the running agent.
	Version, Arch string
	// Program is the absolute path of the running agent, Self opens the binary that runs, also after the file was replaced.
	Program string
	Self    func() (io.ReadCloser, error)
	// Unit is the systemd unit that runs the agent; empty where none does.
	Unit string
	// UnitDirectory is where units are written, /etc/systemd/system.
	UnitDirectory string
	// PackageMarker is the file that a package of the agent contains; empty for none.
	PackageMarker string
	// StateDirectory is that of the agent.
	StateDirectory string
	// Timeout is how long a new agent may take until it has reached the hub.
	Timeout time.Duration
	// Environment is that of programs, as NAME=value.
	Environment []string
	// Replace makes this process execute the binary at Program. It is called with Gate held, and returns at once.
	Replace func()
}

// Manager upgrades the agent that it runs in.
type Manager struct {
	Options
	files files
	// self is the checksum of the running binary, once it was computed.
	self string
	// status is what Status returns.
	status atomic.Pointer[Status]
}

// New returns a Manager; Run starts it.
func New(o Options) *Manager {
	return &Manager{Options: o, files: files{host: o.Host, program: o.Program, stateDirectory: o.StateDirectory,
		unitDirectory: o.UnitDirectory, environment: o.Environment}}
}

// Run upgrades the agent when the hub asks for it, until ctx is done. Failures are retried.
func (m *Manager) Run(ctx context.Context) {
	if s, err := m.files.readState(); err == nil { // step reports the error
		m.status.Store(s.shown())
	}
	failures := 0
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.Source.UpgradeChanged():
			failures = 0
		case <-again:
		}
		if ctx.Err() != nil {
			return // another binary is executed next: this one must not settle its trial
		}
		again = nil
		if err := m.step(ctx); err != nil && ctx.Err() == nil {
			failures++
			delay := retry.Delay(failures, firstRetry, longestRetry)
			m.Log.Warn("Upgrading the agent failed, retrying", "error", err, "retryIn", delay.Round(time.Second))
			again = time.After(delay)
		}
	}
}

// step does what the hub asks for now. An upgrade that an earlier process began is finished first.
func (m *Manager) step(ctx context.Context) error {
	raw, machine, ok := m.Source.Upgrade()
	if !ok {
		return nil
	}
	last, err := m.settle(ctx, len(raw) > 0)
	m.status.Store(last.shown())
	if errors.Is(err, errDamaged) && len(raw) > 0 {
		// To try again would change nothing, and the hub would wait.
		u, _ := plans.DecodeUpgrade(raw)
		return m.refuse(ctx, u, err)
	}
	if err != nil || len(raw) == 0 {
		return err
	}
	u, err := plans.DecodeUpgrade(raw)
	if err != nil {
		return m.refuse(ctx, u, err)
	}
	if len(u.Checksums) == 0 {
		return m.Source.ReportAgent(ctx, last.status(m.Version))
	}
	next, err := m.accept(u, machine, last)
	var refused *refusedError
	switch {
	case errors.As(err, &refused):
		return m.refuse(ctx, u, err)
	case err != nil:
		return err
	case next.ended():
		if next != last {
			if err := m.files.writeState(next); err != nil {
				return err
			}
		}
		m.status.Store(next.shown())
		return m.Source.ReportAgent(ctx, next.status(m.Version))
	}
	m.show(next, plans.UpgradeDownloading, "")
	if err := m.upgrade(ctx, u, next, raw); err != nil {
		if errors.As(err, &refused) {
			return m.refuse(ctx, u, err)
		}
		if ctx.Err() == nil {
			m.show(next, plans.UpgradeDownloading, err.Error())
			m.warn(m.Source.ReportAgent(ctx, m.report(u, plans.UpgradeDownloading, err.Error())))
		}
		return err
	}
	return nil
}

// upgrade gets the binary and replaces that of the agent by it once no plan is being applied.
func (m *Manager) upgrade(ctx context.Context, u plans.AgentUpgrade, next state, raw []byte) error {
	version, err := m.stage(ctx, next.New)
	if err != nil {
		return err
	}
	next.NewVersion = version
	if !m.Gate.TryAcquire(1) {
		const waiting = "waiting for the plan that is being applied"
		m.show(next, plans.UpgradeWaiting, waiting)
		m.warn(m.Source.ReportAgent(ctx, m.report(u, plans.UpgradeWaiting, waiting)))
		if err := m.Gate.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	if now, _, _ := m.Source.Upgrade(); string(now) != string(raw) {
		m.Gate.Release(1)
		return nil // UpgradeChanged is signaled
	}
	m.Log.Info("Upgrading the agent", "from", m.Version, "to", version, "timeout", m.Timeout)
	if err := m.files.replaceProgram(ctx, next, m.Self, m.Timeout); err != nil {
		m.Gate.Release(1)
		return err
	}
	next.Phase, next.Timeout = phaseTrial, m.Timeout.String()
	m.status.Store(next.shown())
	m.Replace()
	return nil
}

// refusedError is why an agent cannot be upgraded by the hub.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

func refusedf(format string, args ...any) error {
	return &refusedError{fmt.Errorf(format, args...).Error()}
}

func (m *Manager) refuse(ctx context.Context, u plans.AgentUpgrade, reason error) error {
	m.Log.Warn("Not upgrading the agent", "reason", reason)
	m.status.Store(&Status{Phase: plans.UpgradeRefused, Generation: u.Generation, Message: reason.Error()})
	return m.Source.ReportAgent(ctx, m.report(u, plans.UpgradeRefused, reason.Error()))
}

func (m *Manager) report(u plans.AgentUpgrade, phase plans.UpgradePhase, message string) plans.AgentStatus {
	return plans.AgentStatus{Version: m.Version, Generation: u.Generation, Phase: phase, Message: message}
}

// show sets the status of an upgrade that has replaced nothing.
func (m *Manager) show(s state, phase plans.UpgradePhase, message string) {
	m.status.Store(&Status{Phase: phase, Generation: s.Generation, Version: s.NewVersion, Message: message})
}

// warn logs that a report without which the upgrade goes on was not written.
func (m *Manager) warn(err error) {
	if err != nil {
		m.Log.Warn("Reporting the status of the agent failed", "error", err)
	}
}

// checksum returns that of the running binary.
func (m *Manager) checksum() (string, error) {
	if m.self != "" {
		return m.self, nil
	}
	binary, err := m.Self()
	if err != nil {
		return "", fmt.Errorf("opening the running binary: %w", err)
	}
	defer binary.Close()
	sum, err := checksum(binary)
	if err == nil {
		m.self = sum
	}
	return sum, err
}
