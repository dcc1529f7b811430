package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host"
)

// Offline is what the state directory of an engine says while no engine works with it.
type Offline struct {
	// State is what can be known without the source; its Source is empty when the directory knows no attempt.
	State State
	// History is the last attempts, the newest last.
	History []journal.Attempt
	// Plan is the raw plan of the last attempt; empty when it is not kept.
	Plan []byte
}

// ReadOffline reads the state directory dir of the source of that name and changes nothing there, so it may be called while an engine
// works with it. It returns the zero Offline for a folder without a journal.
func ReadOffline(h host.Host, dir, source string) (Offline, error) {
	path := filepath.Join(dir, journal.FileName)
	raw, err := h.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Offline{}, nil
	}
	if err != nil {
		return Offline{}, err
	}
	r, err := journal.Read(raw)
	if err != nil {
		return Offline{}, fmt.Errorf("decoding journal %s: %w", path, err)
	}
	history, err := journal.ReadHistory(h, filepath.Join(dir, journal.HistoryFileName))
	if err != nil {
		return Offline{}, err
	}
	if r.Checksum == "" {
		return Offline{History: history}, nil
	}
	state := State{Source: source, Checksum: r.Checksum, Revision: r.Revision, Phase: PhaseIdle}
	state.setLast(r)
	if r.Unfinished() {
		state.Reason = "the attempt was interrupted and will be resumed when the agent runs"
	}
	return Offline{State: state, History: history, Plan: r.Plan}, nil
}
