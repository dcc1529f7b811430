package rkecontrolplane

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/drover-dev/drover/plans"
)

const (
	// maxKept is how many bytes are kept of the values of a key of a report, which are those of all machines. Agents report less. What is
	// small in a plan Secret may be large once it is decompressed.
	maxKept = 512 << 10
	// perValue is about what a value takes beside its bytes.
	perValue = 100
	// maxFailed is how much is kept of the end of an output of an instruction that has failed. Messages have less.
	maxFailed = 4 << 10
)

// trim drops what is too long to be kept of a report: the longest outputs, which no controller reads.
func trim(s *plans.Status) {
	length := func(output []byte) int { return len(output) }
	for name, output := range s.FailedOutput {
		if extra := len(output) - maxFailed; extra > 0 {
			s.FailedOutput[name] = bytes.Clone(output[extra:])
		}
	}
	s.FailedOutput, s.AppliedOutput = shortest(s.FailedOutput, length), shortest(s.AppliedOutput, length)
	s.PeriodicOutput = shortest(s.PeriodicOutput, func(o plans.PeriodicOutput) int { return len(o.Stdout) + len(o.Stderr) })
	s.ProbeStatuses = shortest(s.ProbeStatuses, func(plans.ProbeStatus) int { return 0 })
}

// shortest returns the shortest values, as many as may be kept.
func shortest[V any](values map[string]V, size func(V) int) map[string]V {
	all := func(name string) int { return len(name) + size(values[name]) + perValue }
	total := 0
	for name := range values {
		total += all(name)
	}
	if total <= maxKept {
		return values
	}
	kept, left := map[string]V{}, maxKept
	for _, name := range slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Or(all(a)-all(b), cmp.Compare(a, b)) }) {
		if left -= all(name); left < 0 {
			break
		}
		kept[name] = values[name]
	}
	return kept
}
