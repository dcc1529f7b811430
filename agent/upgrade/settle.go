package upgrade

import (
	"context"
	"errors"
	"fmt"
)

// errRollingBack is returned while the previous agent is to be put back, or executed.
var errRollingBack = errors.New("waiting for the previous agent to be put back")

// settle finishes what an earlier process, or an earlier step of this one, has left, and returns the state. It is called when the hub has
// answered. With reports, the hub asks for reports.
func (m *Manager) settle(ctx context.Context, reports bool) (state, error) {
	s, err := m.files.readState()
	if err != nil || s.Phase == phaseNone {
		return s, err
	}
	self, err := m.checksum()
	if err != nil {
		return s, err
	}
	switch {
	case s.Phase == phaseTrial && self == s.New:
		return m.commit(ctx, s, reports)
	case s.Phase == phaseTrial && self == s.Previous:
		return m.interrupted(ctx, s)
	case s.Phase == phaseRolledBack && self == s.New:
		return s, m.completeRollback(ctx, s)
	case s.Phase == phaseTrial:
		m.Log.Info("Another agent was installed during the upgrade")
		s.Phase = phaseNone
		return s, m.store(ctx, s)
	}
	// The rollback unit may not have ended yet.
	unlock, err := m.files.lock()
	if err != nil {
		return s, err
	}
	defer unlock()
	return s, m.files.cleanUp(ctx, s)
}

// completeRollback does in the new agent what the rollback unit could not: it may have failed whenever its timer ran, or it was killed
// before it could restart the agent. Nothing is done while the unit works. The error is never nil.
func (m *Manager) completeRollback(ctx context.Context, s state) error {
	if err := m.Gate.Acquire(ctx, 1); err != nil {
		return err
	}
	unlock, err := m.files.lock()
	if err != nil {
		m.Gate.Release(1)
		return errors.Join(errRollingBack, err)
	}
	defer unlock()
	if err := m.files.restore(s); err != nil {
		m.Gate.Release(1)
		return err
	}
	m.Log.Info("Completing the rollback of the agent", "reason", s.Reason)
	m.Replace()
	return errRollingBack
}

// commit ends the trial of this agent, which has reached the hub.
func (m *Manager) commit(ctx context.Context, s state, reports bool) (state, error) {
	committed := s
	committed.Phase, committed.Reason = phaseCommitted, ""
	if reports {
		if err := m.Source.ReportAgent(ctx, committed.status(m.Version)); err != nil {
			return s, fmt.Errorf("reporting the upgrade: %w", err)
		}
	}
	unlock, err := m.files.lock()
	if err != nil {
		return s, err
	}
	defer unlock()
	if now, err := m.files.readState(); err != nil || now != s {
		return now, errors.Join(err, errRollingBack)
	}
	if err := m.files.writeState(committed); err != nil {
		return s, err
	}
	m.Log.Info("The agent is upgraded", "version", m.Version)
	return committed, m.files.cleanUp(ctx, committed)
}

// interrupted returns to the state before the trial: the power was cut before the binary was replaced, or replacing it failed.
func (m *Manager) interrupted(ctx context.Context, s state) (state, error) {
	s.Phase = phaseNone
	if s.Interruptions++; s.Interruptions >= maxInterruptions {
		text := fmt.Sprintf("replacing the binary was interrupted %d times", s.Interruptions)
		if s.Reason != "" {
			text += ": " + s.Reason
		}
		s.Phase, s.Reason = phaseRolledBack, text
	}
	return s, m.store(ctx, s)
}

// store writes a state in which this process is the agent to stay, and removes the timer. The binary may have been replaced although that
// was reported as a failure.
func (m *Manager) store(ctx context.Context, s state) error {
	unlock, err := m.files.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.files.restore(s); err != nil {
		return err
	}
	if err := m.files.writeState(s); err != nil {
		return err
	}
	return m.files.cleanUp(ctx, s)
}
