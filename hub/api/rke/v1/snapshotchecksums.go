package v1

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// maxSnapshotChecksums is how many checksums a machine's plan Secret has.
const maxSnapshotChecksums = 100

// SnapshotChecksum is the checksum of a snapshot of etcd.
//
// +kubebuilder:object:generate=false
type SnapshotChecksum struct {
	// File is the name of the file.
	File string `json:"file"`
	// SHA256 is the checksum of the whole file, as hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// SnapshotChecksums are those of the snapshots that a machine has saved last, the newest at the end.
//
// +kubebuilder:object:generate=false
type SnapshotChecksums []SnapshotChecksum

// ReadSnapshotChecksums decodes SnapshotChecksumsAnnotation; none where it is not set.
func ReadSnapshotChecksums(annotations map[string]string) (SnapshotChecksums, error) {
	text := annotations[SnapshotChecksumsAnnotation]
	if text == "" {
		return nil, nil
	}
	var out SnapshotChecksums
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", SnapshotChecksumsAnnotation, err)
	}
	return out, nil
}

// With adds checksums by the names of files, and drops the oldest ones that are too many.
func (c SnapshotChecksums) With(saved map[string]string) SnapshotChecksums {
	out := slices.DeleteFunc(slices.Clone(c), func(s SnapshotChecksum) bool { _, again := saved[s.File]; return again })
	for _, file := range slices.Sorted(maps.Keys(saved)) {
		out = append(out, SnapshotChecksum{File: file, SHA256: saved[file]})
	}
	return out[max(0, len(out)-maxSnapshotChecksums):]
}

// Map returns the checksums by the names of files.
func (c SnapshotChecksums) Map() map[string]string {
	out := make(map[string]string, len(c))
	for _, s := range c {
		out[s.File] = s.SHA256
	}
	return out
}
