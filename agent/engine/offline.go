package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/drover-dev/drover/agent/host"
)

// JournalName is the journal's name in a state directory, historyName that of the history of attempts.
const (
	JournalName = "journal"
	historyName = "history.jsonl"
)

// Offline is what the state directory of an engine tells while no engine works with it.
type Offline struct {
	// State is as far as it can be known; its Source is empty when the directory knows of no attempt.
	State   State
	History []Attempt
	// Plan is the plan of the last attempt; empty when it is not kept.
	Plan []byte
}

// ReadOffline reads a state directory and changes nothing there, so it may be called while an engine works.
func ReadOffline(h host.Host, dir, source string) (Offline, error) {
	path := filepath.Join(dir, JournalName)
	raw, err := h.ReadFile(path)
	if isNotExist(err) {
		return Offline{}, nil
	}
	if err != nil {
		return Offline{}, err
	}
	j := &journal{attempts: map[string]attempt{}}
	for line := range bytes.Lines(raw[:bytes.LastIndexByte(raw, '\n')+1]) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return Offline{}, fmt.Errorf("decoding journal %s: %w", path, err)
		}
		j.replay(e)
	}
	left := offline(j.record, source)
	history, err := h.ReadFile(filepath.Join(dir, historyName))
	if err != nil && !isNotExist(err) {
		return Offline{}, err
	}
	left.History = decodeAttempts(history)
	return left, nil
}

func offline(r record, source string) Offline {
	if r.Checksum == "" {
		return Offline{}
	}
	last := attemptOf(source, r)
	state := State{Source: source, Checksum: r.Checksum, Revision: r.Revision, Doing: DoingNothing, Last: &last,
		Unreported: !r.unfinished() && r.Reported.IsZero() && !r.Canceled}
	if r.unfinished() {
		state.Reason = "the attempt was interrupted and goes on when the agent runs"
	}
	return Offline{State: state, Plan: r.Plan}
}
