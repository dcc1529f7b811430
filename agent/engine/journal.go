package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

const (
	// maxRemembered is for how many plans the journal remembers the last attempt.
	maxRemembered = 64
	// compactBytes is from what size on the journal is written anew when an attempt begins.
	compactBytes = 1 << 20
)

// journal remembers on disk what was done. A line that was cut off by a crash does not count. It may be used by several goroutines.
type journal struct {
	host host.Host
	path string

	// disk is held while a line is on its way to the disk, which may take as long as the disk likes. Nobody who only reads waits for it.
	disk sync.Mutex
	// size is how much of the file there is; who holds disk may use it.
	size int

	// mu is never held while anything is read or written.
	mu       sync.Mutex
	record   record
	attempts map[string]attempt
	// former is what void brings back.
	former *former
}

// former is what the journal held before an attempt began.
type former struct {
	record   record
	attempts map[string]attempt
}

// openJournal reads the journal; a missing one is empty. What cannot be read is reported and not trusted, so that plans are applied
// again rather than taken for applied.
func openJournal(h host.Host, path string, raw []byte) (*journal, error) {
	j := &journal{host: h, path: path, attempts: map[string]attempt{}}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	for line := range bytes.Lines(whole) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			// Nothing may be added to a file that the next start cannot read either.
			return &journal{host: h, path: path, attempts: map[string]attempt{}, size: compactBytes}, fmt.Errorf("decoding journal %s: %w", path, err)
		}
		j.replay(e)
	}
	j.size = len(whole)
	if len(whole) < len(raw) {
		// The next line must not be joined to the half one.
		if err := h.WriteFile(path, whole, host.Private(0o600)); err != nil {
			return j, fmt.Errorf("mending journal %s: %w", path, err)
		}
	}
	return j, nil
}

// state is what the journal knows now. The record's maps are copies.
func (j *journal) state() (record, map[string]attempt) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record.clone(), maps.Clone(j.attempts)
}

func (j *journal) now() record {
	r, _ := j.state()
	return r
}

// replay needs the lock, unless nobody else knows the journal yet.
func (j *journal) replay(e entry) {
	r := &j.record
	switch e.Kind {
	case kindState:
		if e.Record != nil {
			*r = *e.Record
			r.fill()
		}
		if e.Attempts != nil {
			j.attempts = e.Attempts
		}
		j.former = nil
	case kindBegin:
		if e.Begin != nil {
			j.replayBegin(e)
		}
	case kindVoid:
		if j.former != nil {
			j.record, j.attempts, j.former = j.former.record, j.former.attempts, nil
		}
	case kindReported:
		r.Reported = e.Time
	case kindEnd:
		r.replay(e)
		j.attempts[r.Checksum] = attempt{Number: r.Attempt, Succeeded: r.Succeeded, Time: e.Time}
	default:
		r.replay(e)
	}
}

func (j *journal) replayBegin(e entry) {
	j.former = &former{record: j.record, attempts: maps.Clone(j.attempts)}
	kept := map[int]was{}
	if r := j.record; r.delivery() == e.Begin.delivery() && !r.Succeeded && !r.Canceled && !r.RolledBack {
		maps.Copy(kept, j.record.Kept) // what was there before the first try is what a later one puts back
	}
	j.record = record{begin: *e.Begin, Started: e.Time, delivered: e.delivered, Unsure: e.Unsure, Kept: kept}
	j.record.fill()
	j.attempts[e.Begin.Checksum] = attempt{Number: e.Begin.Attempt, Time: e.Time}
	for len(j.attempts) > maxRemembered {
		oldest := ""
		for checksum, a := range j.attempts {
			if oldest == "" || a.Time.Before(j.attempts[oldest].Time) {
				oldest = checksum
			}
		}
		delete(j.attempts, oldest)
	}
}

// begin begins an attempt, with what is known of it already. A journal that has become long is written anew.
func (j *journal) begin(first entry, more ...entry) error {
	j.disk.Lock()
	defer j.disk.Unlock()
	if j.size < compactBytes {
		return j.append(append([]entry{first}, more...))
	}
	kept, attempts := j.state()
	kept.Plan = nil
	all := append([]entry{{Kind: kindState, Record: &kept, Attempts: attempts}, first}, more...)
	raw, err := encode(all)
	if err != nil {
		return err
	}
	j.replayAll(all[1:])
	j.size = len(raw)
	if err := j.host.WriteFile(j.path, raw, host.Private(0o600)); err != nil {
		j.size = compactBytes
		return fmt.Errorf("beginning journal: %w", err)
	}
	return nil
}

// add writes more lines, which reach the disk together. Memory follows even when the disk does not, so that this process knows what it
// did.
func (j *journal) add(entries ...entry) error {
	j.disk.Lock()
	defer j.disk.Unlock()
	return j.append(entries)
}

func (j *journal) replayAll(entries []entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		j.replay(e)
	}
}

// append needs the disk.
func (j *journal) append(entries []entry) error {
	raw, err := encode(entries)
	if err != nil {
		return err
	}
	j.replayAll(entries)
	if err := j.host.AppendFile(j.path, raw); err != nil {
		return fmt.Errorf("writing journal: %w", err)
	}
	j.size += len(raw)
	return nil
}

// encode stamps entries and makes lines of them. In memory a time keeps its monotonic clock, so that a clock that is set harms no pause.
func encode(entries []entry) ([]byte, error) {
	var raw []byte
	for i := range entries {
		if entries[i].Time.IsZero() {
			entries[i].Time = time.Now()
		}
		line := entries[i]
		line.Time = line.Time.UTC()
		text, err := json.Marshal(line)
		if err != nil {
			return nil, fmt.Errorf("encoding journal: %w", err)
		}
		raw = append(append(raw, text...), '\n')
	}
	return raw, nil
}
