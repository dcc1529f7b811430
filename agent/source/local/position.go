package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/drover-dev/drover/plans"
)

// position is the content of a position file. rancher-system-agent reads and writes the first four keys; it ignores the others and drops
// them with its next write. The values are those that the plan Secret has under other keys.
type position struct {
	// AppliedChecksum is the SHA-256 of the content that was applied last.
	AppliedChecksum string `json:"appliedChecksum,omitempty"`
	// Output and PeriodicOutput are gzip of JSON.
	Output         []byte          `json:"output,omitempty"`
	ProbeStatus    json.RawMessage `json:"probeStatus,omitempty"`
	PeriodicOutput []byte          `json:"periodicOutput,omitempty"`

	// FailedChecksum, FailedOutput and FailureCount are of the last failure; a success removes them.
	FailedChecksum string      `json:"failedChecksum,omitempty"`
	FailedOutput   []byte      `json:"failedOutput,omitempty"`
	FailureCount   json.Number `json:"failureCount,omitempty"`
	SuccessCount   json.Number `json:"successCount,omitempty"`
	LastApplyTime  string      `json:"lastApplyTime,omitempty"`
}

// data returns the values by the keys of the plan Secret, without empty ones.
func (p position) data() plans.SecretData {
	data := plans.SecretData{
		plans.KeyAppliedChecksum:       []byte(p.AppliedChecksum),
		plans.KeyAppliedOutput:         p.Output,
		plans.KeyProbeStatuses:         p.ProbeStatus,
		plans.KeyAppliedPeriodicOutput: p.PeriodicOutput,
		plans.KeyFailedChecksum:        []byte(p.FailedChecksum),
		plans.KeyFailedOutput:          p.FailedOutput,
		plans.KeyFailureCount:          []byte(p.FailureCount),
		plans.KeySuccessCount:          []byte(p.SuccessCount),
		plans.KeyLastApplyTime:         []byte(p.LastApplyTime),
	}
	maps.DeleteFunc(data, func(key string, value []byte) bool { return isEmpty(key, value) || string(value) == "null" })
	return data
}

// decodePosition decodes a position file, which may be empty. Values that cannot be decoded are zero in the status; the error is about
// them.
func decodePosition(raw []byte) (plans.SecretData, plans.Status, error) {
	var p position
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := json.Unmarshal(raw, &p); err != nil {
			return plans.SecretData{}, plans.Status{}, fmt.Errorf("decoding position: %w", err)
		}
	}
	data := p.data()
	status, err := plans.DecodeStatus(data)
	return data, status, err
}

// encodePosition returns the position file for a status, as data and encoded, given the data that it had before.
func encodePosition(old plans.SecretData, status plans.Status) (plans.SecretData, []byte, error) {
	data := plans.SecretData{}
	maps.Copy(data, old)
	if err := status.WriteTo(data); err != nil {
		return nil, nil, err
	}
	maps.DeleteFunc(data, isEmpty)
	p := position{
		AppliedChecksum: string(data[plans.KeyAppliedChecksum]),
		Output:          data[plans.KeyAppliedOutput],
		ProbeStatus:     data[plans.KeyProbeStatuses],
		PeriodicOutput:  data[plans.KeyAppliedPeriodicOutput],
		FailedChecksum:  string(data[plans.KeyFailedChecksum]),
		FailedOutput:    data[plans.KeyFailedOutput],
		FailureCount:    json.Number(data[plans.KeyFailureCount]),
		SuccessCount:    json.Number(data[plans.KeySuccessCount]),
		LastApplyTime:   string(data[plans.KeyLastApplyTime]),
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding position: %w", err)
	}
	return p.data(), append(raw, '\n'), nil
}

// isEmpty reports whether a value is not worth a key. A count of 0 is not written, so that a file of rancher-system-agent stays as it is.
func isEmpty(key string, value []byte) bool {
	count := key == plans.KeyFailureCount || key == plans.KeySuccessCount
	return len(value) == 0 || count && string(value) == "0"
}

func equal(a, b plans.SecretData) bool {
	return maps.EqualFunc(a, b, bytes.Equal)
}
