package upgrade

import (
	"fmt"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// PhaseTrial is the phase of an upgrade whose new agent has not reached the hub yet. It is not reported to the hub.
const PhaseTrial plans.UpgradePhase = "trial"

// phaseUnknown is the phase of an upgrade whose state cannot be read.
const phaseUnknown plans.UpgradePhase = "unknown"

// Status is how far the last upgrade that the hub has requested has come. It has no secret.
type Status struct {
	// Phase is the one that is reported to the hub, or PhaseTrial.
	Phase plans.UpgradePhase `json:"phase"`
	// Generation is that of the request.
	Generation int64 `json:"generation"`
	// Version is that of the new agent; empty until it was downloaded.
	Version string `json:"version,omitempty"`
	// Message says what the upgrade waits for, or why it ended.
	Message string `json:"message,omitempty"`
}

// ReadStatus returns the status of the last upgrade from the state directory of an agent, nil if there was none. If it cannot be read, the
// phase is "unknown" and the message says why. A running agent knows more, see Manager.Status.
func ReadStatus(h host.Host, stateDirectory string) *Status {
	s, err := files{host: h, stateDirectory: stateDirectory}.readState()
	if err != nil {
		return &Status{Phase: phaseUnknown, Message: err.Error()}
	}
	return s.shown()
}

// Status returns the status of the last upgrade, nil if none was requested. It reads no file, so that it returns also while a disk hangs.
func (m *Manager) Status() *Status {
	return m.status.Load()
}

// shown is the status of an upgrade that was accepted; nil if it has changed nothing.
func (s state) shown() *Status {
	out := &Status{Generation: s.Generation, Version: s.NewVersion}
	switch s.Phase {
	case phaseTrial:
		out.Phase = PhaseTrial
		out.Message = fmt.Sprintf("the new agent must reach the hub within %s, or the previous one is put back", s.Timeout)
	case phaseCommitted:
		out.Phase = plans.UpgradeDone
	case phaseRolledBack:
		out.Phase, out.Message = plans.UpgradeRolledBack, s.Reason
	default:
		return nil
	}
	return out
}
