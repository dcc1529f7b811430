package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
)

// HistoryFileName is the name of the history of attempts in a state directory.
const HistoryFileName = "history.jsonl"

// MaxAttempts is how many attempts of the history are read, and kept when it is rewritten.
const MaxAttempts = 200

// Attempt is one attempt at a plan, for people. The history holds one line of JSON for each.
type Attempt struct {
	// Source is "hub", or the name of a local plan.
	Source string `json:"source"`
	// Checksum is that of the plan.
	Checksum string `json:"checksum"`
	// Revision is the plan-revision of the delivery; 0 in the checksum protocol.
	Revision int `json:"revision,omitempty"`
	// Number is the attempt number that instructions see.
	Number int `json:"attempt"`
	// Try counts within one delivery, from 1.
	Try int `json:"try"`
	// Started is when the attempt began, in UTC.
	Started time.Time `json:"started"`
	// Ended is when it ended, in UTC; zero while it goes on.
	Ended time.Time `json:"ended,omitzero"`
	// Succeeded says that the plan was applied.
	Succeeded bool `json:"succeeded"`
	// RolledBack says that the files of a failed attempt were restored.
	RolledBack bool `json:"rolledBack,omitempty"`
	// Interrupted counts how often the attempt went on after a restart of the agent.
	Interrupted int `json:"interrupted,omitempty"`
	// Message is why it failed, without any output of programs.
	Message string `json:"message,omitempty"`
	// Instructions are those that were started, in their order.
	Instructions []InstructionRun `json:"instructions,omitempty"`
}

// InstructionRun is one run of an instruction.
type InstructionRun struct {
	// Index is the instruction's place in the plan, from 0.
	Index int `json:"index"`
	// Name is the instruction's; it may be empty.
	Name string `json:"name,omitempty"`
	// Started is when it was started.
	Started time.Time `json:"started"`
	// Ended is when it ended; zero while it runs.
	Ended time.Time `json:"ended,omitzero"`
	// ExitCode is -1 when a signal ended the program or it could not be started.
	ExitCode int `json:"exitCode"`
	// TimedOut says that it was stopped because of its timeout.
	TimedOut bool `json:"timedOut,omitempty"`
	// RunDir keeps the whole output of the run.
	RunDir string `json:"spool,omitempty"`
}

// NewAttempt is what people see of a record.
func NewAttempt(source string, r Record) Attempt {
	return Attempt{
		Source: source, Checksum: r.Checksum, Revision: r.Revision, Number: r.AttemptID.Attempt, Try: r.Tries, Started: r.Started.UTC(),
		Ended: utc(r.Ended), Succeeded: r.Succeeded, RolledBack: r.RolledBack, Interrupted: r.Interrupted, Message: r.Summary,
		Instructions: slices.Clone(r.Runs),
	}
}

// ReadHistory returns the last attempts of the history at path, at most MaxAttempts, the newest last; nil without a history.
func ReadHistory(h fs.FileSystem, path string) ([]Attempt, error) {
	raw, err := readHistory(h, path)
	all := decodeAttempts(raw)
	return all[max(len(all)-MaxAttempts, 0):], err
}

// AddToHistory appends an attempt that has ended to the history at path, unless it is the last one there. A history of twice MaxAttempts,
// or with a half line at its end, is rewritten.
func AddToHistory(h fs.FileSystem, path string, a Attempt) error {
	raw, err := readHistory(h, path)
	if err != nil {
		return err
	}
	all := decodeAttempts(raw)
	n := len(all)
	if n > 0 && all[n-1].Checksum == a.Checksum && all[n-1].Started.Equal(a.Started) {
		return nil
	}
	if n < 2*MaxAttempts && (len(raw) == 0 || raw[len(raw)-1] == '\n') {
		line, err := json.Marshal(a)
		if err != nil {
			return err
		}
		return h.AppendFile(path, append(line, '\n'))
	}
	var kept bytes.Buffer
	encoder := json.NewEncoder(&kept)
	for _, a := range append(all[max(n-MaxAttempts+1, 0):], a) {
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
	return h.WriteFile(path, kept.Bytes(), fs.WithMode(0o600))
}

// decodeAttempts leaves out lines that cannot be decoded, such as one that a crash has cut off.
func decodeAttempts(raw []byte) []Attempt {
	var all []Attempt
	for line := range bytes.Lines(raw) {
		var a Attempt
		if json.Unmarshal(line, &a) == nil {
			all = append(all, a)
		}
	}
	return all
}

func readHistory(h fs.FileSystem, path string) ([]byte, error) {
	raw, err := h.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	return raw, nil
}
