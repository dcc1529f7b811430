package plans

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Status is everything an agent reports in the plan Secret. The zero value says that nothing has been reported yet.
type Status struct {
	// AppliedChecksum is the checksum of the last plan that was applied.
	AppliedChecksum string
	// FailedChecksum is the checksum of the last plan that failed; empty after a success.
	FailedChecksum string
	// FailureCount counts failures in a row, SuccessCount successes in a row.
	FailureCount int
	SuccessCount int
	// LastApplyTime is when the last apply started, to the second; zero means never.
	LastApplyTime time.Time
	// AppliedOutput and FailedOutput are the saved outputs by instruction name; nil means none was reported.
	AppliedOutput map[string][]byte
	FailedOutput  map[string][]byte
	// PeriodicOutput is the last outcome of each periodic instruction by name.
	PeriodicOutput map[string]PeriodicOutput
	// ProbeStatuses are by probe name. The hub takes a machine for healthy when all of them are; nil means not probed yet.
	ProbeStatuses map[string]ProbeStatus
	// State is where the plan stands; empty where only checksums decide.
	State State
	// Revision counts the executions that were started.
	Revision int
	// Checkpoint is how far a paused plan came; nil without one.
	Checkpoint *Checkpoint
	// Progress is what the agent is doing; nil when it does nothing, or never told.
	Progress *Progress
}

// Progress is the value of the key "plan-progress": what the agent is doing for the plan at the moment. It holds no output and no
// content, so it may be shown to anyone who may see the machine.
type Progress struct {
	Checksum string `json:"checksum,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	// Phase is what is being done.
	Phase ProgressPhase `json:"phase,omitempty"`
	// Index and Name are of the instruction, counted from 0; Total is how many there are.
	Index int    `json:"index"`
	Total int    `json:"total,omitempty"`
	Name  string `json:"name,omitempty"`
	// Since is when the phase began.
	Since time.Time `json:"since,omitzero"`
	// PulledBytes of TotalBytes of the image have come; OutputBytes is what the program has written so far.
	PulledBytes int64 `json:"pulledBytes,omitempty"`
	TotalBytes  int64 `json:"totalBytes,omitempty"`
	OutputBytes int64 `json:"outputBytes,omitempty"`
}

// ProgressPhase is what an agent does for a plan.
type ProgressPhase string

const (
	PhaseFiles   ProgressPhase = "files"
	PhasePulling ProgressPhase = "pulling"
	PhaseRunning ProgressPhase = "running"
)

// Checkpoint is the value of the key "plan-checkpoint".
type Checkpoint struct {
	Checksum              string `json:"checksum,omitempty"`
	CompletedInstructions int    `json:"completedInstructions,omitempty"`
	TotalInstructions     int    `json:"totalInstructions,omitempty"`
	ResumeState           State  `json:"resumeState,omitempty"`
	Paused                bool   `json:"paused,omitempty"`
	TerminationIncomplete bool   `json:"terminationIncomplete,omitempty"`
}

// Failed tells whether the plan of this checksum is one that has failed at least threshold times; -1 means never.
func (s Status) Failed(checksum string, threshold int) bool {
	return threshold >= 0 && s.FailedChecksum == checksum && s.FailureCount > 0 && s.FailureCount >= threshold
}

// Healthy tells whether every reported probe is healthy. It is true when none is reported.
func (s Status) Healthy() bool {
	for _, probe := range s.ProbeStatuses {
		if !probe.Healthy {
			return false
		}
	}
	return true
}

// DecodeStatus reads every key that an agent writes. Absent and empty values mean the zero value; a value of the wrong form is an
// error that names its key.
func DecodeStatus(data SecretData) (Status, error) {
	s := Status{
		AppliedChecksum: string(data[KeyAppliedChecksum]),
		FailedChecksum:  string(data[KeyFailedChecksum]),
		State:           State(data[KeyPlanState]),
	}
	for _, field := range []struct {
		key    string
		decode func([]byte) error
	}{
		{KeyFailureCount, decimal(&s.FailureCount)},
		{KeySuccessCount, decimal(&s.SuccessCount)},
		{KeyPlanRevision, decimal(&s.Revision)},
		{KeyLastApplyTime, func(raw []byte) (err error) { s.LastApplyTime, err = ParseTime(string(raw)); return err }},
		{KeyAppliedOutput, zippedInto(&s.AppliedOutput)},
		{KeyFailedOutput, zippedInto(&s.FailedOutput)},
		{KeyAppliedPeriodicOutput, zippedInto(&s.PeriodicOutput)},
		{KeyProbeStatuses, func(raw []byte) error { return json.Unmarshal(raw, &s.ProbeStatuses) }},
		{KeyPlanCheckpoint, func(raw []byte) error { return json.Unmarshal(raw, &s.Checkpoint) }},
		{KeyPlanProgress, func(raw []byte) error { return json.Unmarshal(raw, &s.Progress) }},
	} {
		raw := data[field.key]
		if len(raw) == 0 {
			continue
		}
		if err := field.decode(raw); err != nil {
			return Status{}, fmt.Errorf("decoding %s: %w", field.key, err)
		}
	}
	return s, nil
}

// WriteTo writes the status into data, in the form every agent and hub reads. A value that already says the same stays as it is, so
// that reporting an unchanged status changes no byte. On an error data is as it was.
func (s Status) WriteTo(data SecretData) error {
	out := SecretData{}
	if err := s.encode(data, out); err != nil {
		return err
	}
	for key, value := range out {
		if value == nil {
			delete(data, key)
		} else {
			data[key] = value
		}
	}
	return nil
}

// encode puts into out what differs from old; nil means that the key goes away.
func (s Status) encode(old, out SecretData) error {
	text := func(key, value string) {
		if string(old[key]) != value {
			out[key] = []byte(value)
		}
	}
	reported := s.AppliedChecksum != "" || s.FailedChecksum != ""
	count := func(key string, value int) {
		if _, exists := old[key]; value != 0 || exists || reported {
			text(key, strconv.Itoa(value))
		}
	}
	text(KeyAppliedChecksum, s.AppliedChecksum)
	text(KeyFailedChecksum, s.FailedChecksum)
	text(KeyPlanState, string(s.State))
	text(KeyLastApplyTime, FormatTime(s.LastApplyTime))
	count(KeyFailureCount, s.FailureCount)
	count(KeySuccessCount, s.SuccessCount)
	if s.State != "" || s.Revision != 0 {
		count(KeyPlanRevision, s.Revision)
	}
	if err := zip(old, out, KeyAppliedOutput, s.AppliedOutput, slices.Equal[[]byte]); err != nil {
		return err
	}
	if err := zip(old, out, KeyFailedOutput, s.FailedOutput, slices.Equal[[]byte]); err != nil {
		return err
	}
	if err := zip(old, out, KeyAppliedPeriodicOutput, s.PeriodicOutput, PeriodicOutput.equal); err != nil {
		return err
	}
	return s.encodeJSON(old, out)
}

func (s Status) encodeJSON(old, out SecretData) error {
	put := func(key string, absent bool, value any) error {
		if absent {
			if _, exists := old[key]; exists {
				out[key] = nil
			}
			return nil
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", key, err)
		}
		if !bytes.Equal(old[key], raw) {
			out[key] = raw
		}
		return nil
	}
	if err := put(KeyProbeStatuses, s.ProbeStatuses == nil, s.ProbeStatuses); err != nil {
		return err
	}
	if err := put(KeyPlanCheckpoint, s.Checkpoint == nil, s.Checkpoint); err != nil {
		return err
	}
	return put(KeyPlanProgress, s.Progress == nil, s.Progress)
}

func (o PeriodicOutput) equal(other PeriodicOutput) bool {
	return bytes.Equal(o.Stdout, other.Stdout) && bytes.Equal(o.Stderr, other.Stderr) && o.Name == other.Name &&
		o.ExitCode == other.ExitCode && o.Failures == other.Failures &&
		o.LastSuccessfulRunTime == other.LastSuccessfulRunTime && o.LastFailedRunTime == other.LastFailedRunTime
}

// zip compresses value under key, unless the old bytes mean the same already. A nil map is an empty value.
func zip[V any](old, out SecretData, key string, value map[string]V, equal func(a, b V) bool) error {
	if value == nil {
		if len(old[key]) != 0 {
			out[key] = []byte{}
		}
		return nil
	}
	var was map[string]V
	if err := zippedInto(&was)(old[key]); err == nil && was != nil && maps.EqualFunc(was, value, equal) {
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", key, err)
	}
	zipped, err := compress(raw)
	if err != nil {
		return fmt.Errorf("compressing %s: %w", key, err)
	}
	out[key] = zipped
	return nil
}

func zippedInto(into any) func([]byte) error {
	return func(raw []byte) error {
		plain, err := decompress(raw)
		if err != nil {
			return err
		}
		return json.Unmarshal(plain, into)
	}
}

func decimal(into *int) func([]byte) error {
	return func(raw []byte) error {
		value, err := strconv.Atoi(string(raw))
		if err != nil {
			return fmt.Errorf("%q is not a decimal number", raw)
		}
		*into = value
		return nil
	}
}
