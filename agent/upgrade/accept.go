package upgrade

import (
	"encoding/hex"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// accept verifies an upgrade and returns the state in which it continues or has ended. The error is a *refusedError, unless reading a file
// failed.
func (m *Manager) accept(u plans.AgentUpgrade, machine string, last state) (state, error) {
	key, err := m.Source.SigningKey()
	if err != nil {
		return state{}, err
	}
	if key == nil {
		return state{}, refusedf("connection info has no planSigningKey to verify the upgrade with: " +
			"run the install script with a registration token")
	}
	if err := u.Verify(key, machine); err != nil {
		return state{}, refusedf("%w", err)
	}
	next := state{Generation: u.Generation, Sequence: u.Sequence, KeyID: u.KeyID, Machine: machine, Program: m.Program, Unit: m.Unit}
	if last.KeyID == next.KeyID && last.Machine == next.Machine {
		switch {
		case u.Sequence < last.Sequence:
			return state{}, refusedf("replay: sequence %d is lower than the accepted %d", u.Sequence, last.Sequence)
		case u.Sequence == last.Sequence && last.ended():
			return last, nil
		case u.Sequence == last.Sequence:
			next.Interruptions = last.Interruptions
		}
	}
	self, err := m.checksum()
	if err != nil {
		return state{}, err
	}
	next.Previous, next.New = self, u.Checksums[m.Arch]
	if raw, err := hex.DecodeString(next.New); err != nil || len(raw) != 32 || strings.ToLower(next.New) != next.New {
		return state{}, refusedf("hub hands out no agent for %s", m.Arch)
	}
	if next.New == self {
		next.Phase = phaseCommitted
		return next, nil
	}
	return next, m.refusal()
}

// refusal is why nobody but the one who installed this agent can replace it; nil if the agent can.
func (m *Manager) refusal() error {
	if m.PackageMarker != "" {
		marker, err := m.Host.ReadFile(m.PackageMarker)
		for line := range strings.Lines(string(marker)) {
			if program, found := strings.CutPrefix(strings.TrimSpace(line), "program="); err == nil && found && program == m.Program {
				return refusedf("%s belongs to a package: upgrade the package drover-agent with the package manager", m.Program)
			}
		}
	}
	if filepath.Base(filepath.Dir(m.Program)) == VersionsDirectory {
		return refusedf("agent was started from %s and not from its installed path", m.Program)
	}
	if m.Unit == "" {
		return refusedf("agent is not run by a systemd unit, so that nothing could roll back a failed upgrade")
	}
	return nil
}
