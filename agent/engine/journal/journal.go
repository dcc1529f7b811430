// Package journal is the engine's write-ahead journal: what was done for a plan, which attempt it was and how it ended, synced to disk
// before the next step. After a crash the engine goes on from it. The package also keeps the history of attempts for people. It decides
// nothing and touches nothing but its two files.
package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/engine/filestate"
	"github.com/drover-dev/drover/agent/host/fs"
)

// FileName is the journal's name in a state directory.
const FileName = "journal"

const (
	// maxLastAttempts is for how many plans the journal remembers the last attempt.
	maxLastAttempts = 64
	// CompactBytes is the size from which on the journal is rewritten when an attempt begins.
	CompactBytes = 1 << 20
)

// Journal records on disk what was done. It may be used by several goroutines.
type Journal struct {
	host fs.FileSystem
	path string

	// disk is held while a line is written, which may take as long as the disk takes. Readers do not wait for it.
	disk sync.Mutex
	// size is the size of the file. disk guards it and the fields up to the next lock.
	size int
	// unwritten are the lines that could not be written, to be written before any other.
	unwritten []byte
	// outdated is set while the file must be replaced before a line may be appended: it ends with half a line, or lines were
	// dropped.
	outdated bool

	// mu is never held during input or output.
	mu       sync.Mutex
	record   Record
	attempts map[string]LastAttempt // by checksum
	// previous is the attempt before the last one, until its backups are taken; nil without one.
	previous *Record
}

// Open reads the journal at path from raw; empty means that there is none. A last line that a crash has cut off does not count and is
// removed from the file. A journal that cannot be decoded is reported and not trusted: the Journal returned with the error is empty, so
// that plans are applied again rather than taken for applied.
func Open(h fs.FileSystem, path string, raw []byte) (*Journal, error) {
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	j, err := decode(whole)
	if err != nil {
		// Nothing may be appended to a file that the next start cannot read either.
		empty := &Journal{host: h, path: path, attempts: map[string]LastAttempt{}, size: CompactBytes}
		return empty, fmt.Errorf("decoding journal %s: %w", path, err)
	}
	j.host, j.path, j.size = h, path, len(whole)
	if len(whole) < len(raw) {
		// The next line must not be joined to the half one.
		if err := h.WriteFile(path, whole, fs.WithMode(0o600)); err != nil {
			j.outdated = true
			return j, fmt.Errorf("repairing journal %s: %w", path, err)
		}
	}
	return j, nil
}

// Read decodes a journal without changing it, also while an engine writes to it, and returns its last attempt.
func Read(raw []byte) (Record, error) {
	j, err := decode(raw[:bytes.LastIndexByte(raw, '\n')+1])
	if err != nil {
		return Record{}, err
	}
	return j.record, nil
}

// decode replays whole lines.
func decode(lines []byte) (*Journal, error) {
	j := &Journal{attempts: map[string]LastAttempt{}}
	for line := range bytes.Lines(lines) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		j.replay(e)
	}
	return j, nil
}

// State is the last attempt, and the last attempt of each remembered plan by its checksum. Both are copies.
func (j *Journal) State() (Record, map[string]LastAttempt) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.record.clone(), maps.Clone(j.attempts)
}

// Record is the last attempt, as a copy; its Checksum is empty when there was none.
func (j *Journal) Record() Record {
	r, _ := j.State()
	return r
}

// replay applies an entry in memory. It needs mu, unless nobody else has the Journal yet.
func (j *Journal) replay(e Entry) {
	r := &j.record
	switch e.Kind {
	case KindSnapshot:
		if e.Record != nil {
			*r = *e.Record
			r.makeMaps()
		}
		if e.Attempts != nil {
			j.attempts = e.Attempts
		}
		j.previous = nil
	case KindBegin:
		if e.Begin != nil {
			j.replayBegin(e)
		}
	case KindReported:
		r.Reported = e.Time
	case KindEnd:
		r.replay(e)
		j.attempts[r.Checksum] = LastAttempt{Number: r.Attempt, Succeeded: r.Succeeded, Time: e.Time}
	default:
		r.replay(e)
	}
}

func (j *Journal) replayBegin(e Entry) {
	previous := j.record
	j.previous = &previous
	backups := map[int]filestate.Backup{}
	if r := j.record; r.Delivery() == e.Begin.Delivery() && !r.Succeeded && !r.Canceled && !r.RolledBack {
		maps.Copy(backups, r.Backups) // a later try restores what was there before the first
	}
	j.record = Record{AttemptID: *e.Begin, Started: e.Time, DeliveredPlan: e.DeliveredPlan, Backups: backups}
	j.record.makeMaps()
	j.attempts[e.Begin.Checksum] = LastAttempt{Number: e.Begin.Attempt, Time: e.Time}
	for len(j.attempts) > maxLastAttempts {
		oldest := ""
		for checksum, a := range j.attempts {
			if oldest == "" || a.Time.Before(j.attempts[oldest].Time) {
				oldest = checksum
			}
		}
		delete(j.attempts, oldest)
	}
}

// Append writes entries, which reach the disk together. The Journal in memory follows even when the write fails, so that this process
// knows what it did; entries that were not written precede those of the next Append, or of Flush, so that the file never has an entry
// without those before it. A journal that has grown past CompactBytes is rewritten when an attempt begins.
func (j *Journal) Append(entries ...Entry) error {
	j.disk.Lock()
	defer j.disk.Unlock()
	raw, err := encode(entries)
	if err != nil {
		return err
	}
	if j.outdated || entries[0].Kind == KindBegin && j.size >= CompactBytes {
		snapshot, err := j.snapshot(entries[0].Kind == KindBegin)
		if err != nil {
			return err
		}
		j.replayAll(entries)
		return j.replace(append(snapshot, raw...))
	}
	j.replayAll(entries)
	return j.append(append(j.unwritten, raw...))
}

// Flush writes the entries that could not be written before. It does nothing if there are none.
func (j *Journal) Flush() error {
	j.disk.Lock()
	defer j.disk.Unlock()
	switch {
	case j.outdated:
		snapshot, err := j.snapshot(false)
		if err != nil {
			return err
		}
		return j.replace(snapshot)
	case len(j.unwritten) > 0:
		return j.append(j.unwritten)
	}
	return nil
}

// snapshot encodes what is in memory. An attempt that begins brings its own plan, so the plan before is left out then.
func (j *Journal) snapshot(begins bool) ([]byte, error) {
	last, attempts := j.State()
	if begins || !last.Unfinished() && !last.Unreported() {
		last.Plan = nil
	}
	return encode([]Entry{{Kind: KindSnapshot, Record: &last, Attempts: attempts}})
}

// append appends lines to the file. On a failure it remembers them, up to CompactBytes; if there are more, the file must be replaced. It
// needs disk.
func (j *Journal) append(lines []byte) error {
	if err := j.host.AppendFile(j.path, lines); err != nil {
		if j.unwritten = lines; len(lines) > CompactBytes {
			j.unwritten, j.outdated = nil, true
		}
		return fmt.Errorf("writing journal: %w", err)
	}
	j.unwritten, j.size = nil, j.size+len(lines)
	return nil
}

// replace replaces the file. It needs disk.
func (j *Journal) replace(content []byte) error {
	j.unwritten = nil // the content has it, as will the next snapshot
	if err := j.host.WriteFile(j.path, content, fs.WithMode(0o600)); err != nil {
		j.outdated = true
		return fmt.Errorf("writing journal: %w", err)
	}
	j.outdated, j.size = false, len(content)
	return nil
}

func (j *Journal) replayAll(entries []Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		j.replay(e)
	}
}

// TakePreviousBackups returns, once, the backups of the delivery before the current one, for removal. They are kept for people as long as
// that delivery, having failed, is the last one. nil means that there are none to remove.
func (j *Journal) TakePreviousBackups() map[int]filestate.Backup {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.previous
	if r == nil || r.Delivery() == j.record.Delivery() && len(j.record.Backups) > 0 {
		return nil
	}
	j.previous = nil
	if r.Succeeded || r.RolledBack {
		return nil
	}
	return r.Backups
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
