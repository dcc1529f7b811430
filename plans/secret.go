package plans

import (
	"bytes"
	"encoding/json"
	"errors"
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
	// FailureCount counts attempts in a row that failed.
	FailureCount int
	// SuccessCount counts plans in a row that were applied.
	SuccessCount int
	// LastApplyTime is when the last attempt began, to the second; zero means never.
	LastApplyTime time.Time
	// AppliedOutput is the saved outputs of the last plan that was applied, by instruction name; nil means none was reported.
	AppliedOutput map[string][]byte
	// FailedOutput is the same of the last attempt that failed, with the error; nil after a success.
	FailedOutput map[string][]byte
	// PeriodicOutput is the last outcome of each periodic instruction by name.
	PeriodicOutput map[string]PeriodicOutput
	// ProbeStatuses are by probe name, and by CertificateName. A machine is healthy when all of them are; nil means not probed yet.
	ProbeStatuses map[string]ProbeStatus
	// State is where the plan stands; empty where only checksums decide.
	State State
	// Revision counts how often the execution of a plan was started.
	Revision int
	// Checkpoint is how far an interrupted plan came; nil when none is interrupted.
	Checkpoint *Checkpoint
	// Progress is what the agent is doing; nil when no step takes long.
	Progress *Progress
	// Agent is the running agent and its upgrade; nil where the hub has not asked for it.
	Agent *AgentStatus
}

// Reported reports whether an agent has begun to apply a plan, ever.
func (s Status) Reported() bool {
	return s.AppliedChecksum != "" || s.FailedChecksum != "" || s.Revision > 0
}

// Progress is the value of the key "plan-progress": what the agent is doing for the plan at the moment. It holds no output and no
// content, so it may be shown to anyone who may see the machine.
type Progress struct {
	// Checksum is that of the plan.
	Checksum string `json:"checksum,omitempty"`
	// Attempt is the attempt number that instructions see.
	Attempt int `json:"attempt,omitempty"`
	// Phase is what is being done.
	Phase ProgressPhase `json:"phase,omitempty"`
	// Index is the instruction's, from 0; 0 in PhaseFiles.
	Index int `json:"index"`
	// Total is how many instructions the plan has, or how many files in PhaseFiles.
	Total int `json:"total,omitempty"`
	// Name is the instruction's; empty where it has none, and in PhaseFiles.
	Name string `json:"name,omitempty"`
	// Since is when the phase began, in UTC.
	Since time.Time `json:"since,omitzero"`
	// PulledBytes is how much of the image is downloaded.
	PulledBytes int64 `json:"pulledBytes,omitempty"`
	// TotalBytes is the size of the image; 0 while it is not known.
	TotalBytes int64 `json:"totalBytes,omitempty"`
	// OutputBytes is how much the program has written.
	OutputBytes int64 `json:"outputBytes,omitempty"`
}

// ProgressPhase is what an agent does for a plan.
type ProgressPhase string

const (
	// PhaseFiles is writing and deleting files.
	PhaseFiles ProgressPhase = "files"
	// PhasePulling is pulling and unpacking the image of an instruction.
	PhasePulling ProgressPhase = "pulling"
	// PhaseRunning is running an instruction.
	PhaseRunning ProgressPhase = "running"
)

// Checkpoint is the value of the key "plan-checkpoint": how far a plan came before it was paused or canceled.
type Checkpoint struct {
	// Checksum is that of the plan.
	Checksum string `json:"checksum,omitempty"`
	// CompletedInstructions is how many instructions have succeeded in the current attempt.
	CompletedInstructions int `json:"completedInstructions,omitempty"`
	// TotalInstructions is how many instructions the plan has.
	TotalInstructions int `json:"totalInstructions,omitempty"`
	// ResumeState is the state that the plan had before the pause, and returns to.
	ResumeState State `json:"resumeState,omitempty"`
	// Paused is set for a pause, and not for a cancellation.
	Paused bool `json:"paused,omitempty"`
	// TerminationIncomplete is set when processes of a canceled plan could not be stopped.
	TerminationIncomplete bool `json:"terminationIncomplete,omitempty"`
}

// Failed reports whether the plan of this checksum has failed at least threshold times; Unlimited means never.
func (s Status) Failed(checksum string, threshold int) bool {
	return threshold >= 0 && s.FailedChecksum == checksum && s.FailureCount > 0 && s.FailureCount >= threshold
}

// DecodeStatus reads every key that an agent writes. Absent and empty values mean the zero value. So do values of the wrong form: the error
// names their keys, and the status holds the other values.
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
		{KeyAppliedOutput, compressedJSON(&s.AppliedOutput)},
		{KeyFailedOutput, compressedJSON(&s.FailedOutput)},
		{KeyAppliedPeriodicOutput, compressedJSON(&s.PeriodicOutput)},
		{KeyProbeStatuses, func(raw []byte) error { return json.Unmarshal(raw, &s.ProbeStatuses) }},
		{KeyPlanCheckpoint, func(raw []byte) error { return json.Unmarshal(raw, &s.Checkpoint) }},
		{KeyPlanProgress, func(raw []byte) error { return json.Unmarshal(raw, &s.Progress) }},
		{KeyAgentStatus, func(raw []byte) error { return json.Unmarshal(raw, &s.Agent) }},
	} {
		raw := data[field.key]
		if len(raw) == 0 {
			continue
		}
		if err := field.decode(raw); err != nil {
			others := maps.Clone(data)
			delete(others, field.key)
			s, more := DecodeStatus(others)
			return s, errors.Join(fmt.Errorf("decoding %s: %w", field.key, err), more)
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

// encode puts into out what differs from old; nil means that the key is deleted.
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
	return errors.Join(
		putCompressed(old, out, KeyAppliedOutput, s.AppliedOutput, slices.Equal[[]byte]),
		putCompressed(old, out, KeyFailedOutput, s.FailedOutput, slices.Equal[[]byte]),
		putCompressed(old, out, KeyAppliedPeriodicOutput, s.PeriodicOutput, PeriodicOutput.equal),
		putJSON(old, out, KeyProbeStatuses, s.ProbeStatuses == nil, s.ProbeStatuses),
		putJSON(old, out, KeyPlanCheckpoint, s.Checkpoint == nil, s.Checkpoint),
		putJSON(old, out, KeyPlanProgress, s.Progress == nil, s.Progress),
		putJSON(old, out, KeyAgentStatus, s.Agent == nil, s.Agent),
	)
}

// putJSON writes value under key as JSON; an absent one deletes the key.
func putJSON(old, out SecretData, key string, absent bool, value any) error {
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

func (o PeriodicOutput) equal(other PeriodicOutput) bool {
	return bytes.Equal(o.Stdout, other.Stdout) && bytes.Equal(o.Stderr, other.Stderr) && o.Name == other.Name &&
		o.ExitCode == other.ExitCode && o.Failures == other.Failures &&
		o.LastSuccessfulRunTime == other.LastSuccessfulRunTime && o.LastFailedRunTime == other.LastFailedRunTime
}

// putCompressed writes value under key as compressed JSON, unless the old bytes mean the same already. A nil map is an empty value.
func putCompressed[V any](old, out SecretData, key string, value map[string]V, equal func(a, b V) bool) error {
	if value == nil {
		if len(old[key]) != 0 {
			out[key] = []byte{}
		}
		return nil
	}
	var before map[string]V
	if err := compressedJSON(&before)(old[key]); err == nil && before != nil && maps.EqualFunc(before, value, equal) {
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", key, err)
	}
	compressed, err := compress(raw)
	if err != nil {
		return fmt.Errorf("compressing %s: %w", key, err)
	}
	out[key] = compressed
	return nil
}

// compressedJSON decodes a compressed value.
func compressedJSON(into any) func([]byte) error {
	return func(raw []byte) error {
		plain, err := decompress(raw)
		if err != nil {
			return err
		}
		return json.Unmarshal(plain, into)
	}
}

// decimal decodes a number.
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
