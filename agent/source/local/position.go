package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/drover-dev/drover/plans"
)

// position is the content of a position file. rancher-system-agent reads and writes the first four keys; it ignores the others and drops
// them with its next write.
type position struct {
	AppliedChecksum string          `json:"appliedChecksum,omitempty"`
	Output          []byte          `json:"output,omitempty"`
	ProbeStatus     json.RawMessage `json:"probeStatus,omitempty"`
	PeriodicOutput  []byte          `json:"periodicOutput,omitempty"`

	FailedChecksum string      `json:"failedChecksum,omitempty"`
	FailedOutput   []byte      `json:"failedOutput,omitempty"`
	FailureCount   json.Number `json:"failureCount,omitempty"`
	SuccessCount   json.Number `json:"successCount,omitempty"`
	LastApplyTime  string      `json:"lastApplyTime,omitempty"`
}

// fields are the position's values by the keys that the plan Secret has for the same.
func (p *position) fields() map[string]field {
	return map[string]field{
		plans.KeyAppliedChecksum:       textField(&p.AppliedChecksum),
		plans.KeyAppliedOutput:         bytesField(&p.Output),
		plans.KeyProbeStatuses:         bytesField((*[]byte)(&p.ProbeStatus)),
		plans.KeyAppliedPeriodicOutput: bytesField(&p.PeriodicOutput),
		plans.KeyFailedChecksum:        textField(&p.FailedChecksum),
		plans.KeyFailedOutput:          bytesField(&p.FailedOutput),
		plans.KeyFailureCount:          textField((*string)(&p.FailureCount)),
		plans.KeySuccessCount:          textField((*string)(&p.SuccessCount)),
		plans.KeyLastApplyTime:         textField(&p.LastApplyTime),
	}
}

type field struct {
	get func() []byte
	set func([]byte)
}

func textField(text *string) field {
	return field{func() []byte { return []byte(*text) }, func(raw []byte) { *text = string(raw) }}
}

func bytesField(value *[]byte) field {
	return field{func() []byte { return *value }, func(raw []byte) { *value = raw }}
}

// decodePosition reads a position file; an empty one says nothing. What cannot be read counts as not there, and is an error beside the rest.
func decodePosition(raw []byte) (plans.SecretData, plans.Status, error) {
	data := plans.SecretData{}
	if len(bytes.TrimSpace(raw)) == 0 {
		return data, plans.Status{}, nil
	}
	var p position
	if err := json.Unmarshal(raw, &p); err != nil {
		return data, plans.Status{}, fmt.Errorf("decoding position: %w", err)
	}
	for key, field := range p.fields() {
		if value := field.get(); !empty(key, value) && string(value) != "null" {
			data[key] = value
		}
	}
	status, err := plans.DecodeStatus(data)
	if err == nil {
		return data, status, nil
	}
	for _, key := range slices.Collect(maps.Keys(data)) {
		if _, err := plans.DecodeStatus(plans.SecretData{key: data[key]}); err != nil {
			delete(data, key)
		}
	}
	status, again := plans.DecodeStatus(data)
	if again != nil {
		return plans.SecretData{}, plans.Status{}, again
	}
	return data, status, err
}

// encodePosition is what the position file holds with this status, given what it held before.
func encodePosition(old plans.SecretData, status plans.Status) (plans.SecretData, []byte, error) {
	data := maps.Clone(old)
	if data == nil {
		data = plans.SecretData{}
	}
	if err := status.WriteTo(data); err != nil {
		return nil, nil, err
	}
	var p position
	fields := p.fields()
	for key, value := range data {
		if field, known := fields[key]; known && !empty(key, value) {
			field.set(value)
		} else {
			delete(data, key)
		}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding position: %w", err)
	}
	return data, append(raw, '\n'), nil
}

// empty tells that a value says nothing. A count of 0 is not written, so that a file of rancher-system-agent stays as it is.
func empty(key string, value []byte) bool {
	count := key == plans.KeyFailureCount || key == plans.KeySuccessCount
	return len(value) == 0 || count && string(value) == "0"
}

func equal(a, b plans.SecretData) bool {
	return maps.EqualFunc(a, b, bytes.Equal)
}
