package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	hostfs "github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// phase is how far an upgrade has come, as it is on disk.
type phase string

const (
	// phaseNone is an upgrade that has not replaced anything.
	phaseNone phase = ""
	// phaseTrial is written before the binary is replaced. It ends when the new agent has reached the hub.
	phaseTrial phase = "trial"
	// phaseCommitted is an upgrade that has succeeded.
	phaseCommitted phase = "committed"
	// phaseRolledBack is written before the previous binary is put back.
	phaseRolledBack phase = "rolled-back"
)

// state is the last upgrade that was accepted. It is on disk before each step that depends on it.
type state struct {
	Phase phase `json:"phase"`
	// Generation, Sequence, KeyID and Machine are those of the request.
	Generation int64  `json:"generation"`
	Sequence   int64  `json:"sequence"`
	KeyID      string `json:"keyID"`
	Machine    string `json:"machine"`
	// Program is the path of the agent's binary, Unit the systemd unit that runs it.
	Program string `json:"program"`
	Unit    string `json:"unit"`
	// New and Previous are the checksums of the binaries.
	New      string `json:"new"`
	Previous string `json:"previous"`
	// NewVersion is what the new binary says that it is.
	NewVersion string `json:"newVersion"`
	// Timeout is how long the trial may take, for messages.
	Timeout string `json:"timeout"`
	// Interruptions counts how often the binary was not replaced in phaseTrial.
	Interruptions int `json:"interruptions,omitempty"`
	// Reason is why it was rolled back, or why the binary was not replaced in phaseTrial.
	Reason string `json:"reason,omitempty"`
}

// ended reports whether nothing more will be done for the request.
func (s state) ended() bool { return s.Phase == phaseCommitted || s.Phase == phaseRolledBack }

// status is what is reported of an upgrade to the hub by an agent of this version.
func (s state) status(version string) plans.AgentStatus {
	status := plans.AgentStatus{Version: version}
	switch s.Phase {
	case phaseCommitted:
		status.Generation, status.Phase = s.Generation, plans.UpgradeDone
	case phaseRolledBack:
		status.Generation, status.Phase, status.Message = s.Generation, plans.UpgradeRolledBack, s.Reason
	}
	return status
}

func (f files) statePath() string { return filepath.Join(f.stateDirectory, "agent-upgrade") }

// errDamaged is wrapped by the error for a state that this agent cannot decode.
var errDamaged = errors.New("the file is damaged, or of another version of the agent; remove it")

// readState returns the zero state if there is none.
func (f files) readState() (state, error) {
	raw, err := f.host.ReadFile(f.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("reading the state of the upgrade: %w", err)
	}
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		return state{}, fmt.Errorf("decoding %s: %w: %w", f.statePath(), err, errDamaged)
	}
	return s, nil
}

func (f files) writeState(s state) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the state of the upgrade: %w", err)
	}
	if err := f.host.WriteFile(f.statePath(), append(raw, '\n'), hostfs.WithMode(0o600)); err != nil {
		return fmt.Errorf("writing the state of the upgrade: %w", err)
	}
	return nil
}

// lock keeps the agent and the rollback from changing the state at the same time.
func (f files) lock() (func(), error) {
	return f.host.Lock(f.statePath() + ".lock")
}
