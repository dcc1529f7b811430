// Package figures holds what a run of the scale simulator has measured: samples, what was used between two of them, whether it grows in
// proportion to the number of machines, and how all of it is shown. It measures nothing and starts nothing.
package figures

import (
	"maps"
	"slices"
	"time"
)

// Sample is the state of a hub at one moment.
type Sample struct {
	// Time is when the sample was taken.
	Time time.Time
	// CPU is the processor time that the process has used, in user and in system mode.
	CPU time.Duration
	// Resident is the resident memory of the process, Heap the part of Go's heap that the last garbage collection has found alive, both in
	// bytes.
	Resident, Heap int64
	// Revision is that of etcd: it grows by one with each write.
	Revision int64
	// Writes counts what the API server has asked etcd to write, by resource, those that failed because of a conflict too.
	Writes map[string]float64
}

// Usage is what a hub has used between two samples.
type Usage struct {
	// Duration is the time between the samples, CPU the processor time used in it.
	Duration, CPU time.Duration
	// Writes is the number of writes to etcd.
	Writes int64
	// ByResource are the writes by resource, those that failed because of a conflict too.
	ByResource map[string]float64
}

// Since returns what was used since an earlier sample.
func (s Sample) Since(earlier Sample) Usage {
	return Usage{
		Duration: s.Time.Sub(earlier.Time), CPU: s.CPU - earlier.CPU, Writes: s.Revision - earlier.Revision,
		ByResource: difference(s.Writes, earlier.Writes),
	}
}

// difference leaves out what has not changed.
func difference(later, earlier map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for key, value := range later {
		if value != earlier[key] {
			out[key] = value - earlier[key]
		}
	}
	return out
}

// Cores is the average number of processors in use.
func (u Usage) Cores() float64 { return perSecond(u.CPU.Seconds(), u.Duration) }

// WritesPerMinute is the average number of writes to etcd in a minute.
func (u Usage) WritesPerMinute() float64 { return 60 * perSecond(float64(u.Writes), u.Duration) }

func perSecond(value float64, in time.Duration) float64 {
	if in <= 0 {
		return 0
	}
	return value / in.Seconds()
}

// Top returns the keys with the largest values, at most n of them, the largest first.
func Top(values map[string]float64, n int) []string {
	keys := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		switch {
		case values[a] > values[b]:
			return -1
		case values[a] < values[b]:
			return 1
		case a < b:
			return -1
		}
		return 1
	})
	return keys[:min(n, len(keys))]
}
