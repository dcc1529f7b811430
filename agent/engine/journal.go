package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

// maxRemembered is for how many plans the journal remembers the last attempt.
const maxRemembered = 64

// entry is one line of the journal. Each is synced to disk before what it announces is begun, or after what it tells was done.
type entry struct {
	Kind kind      `json:"kind"`
	Time time.Time `json:"time"`
	// Begin and Attempts are set for kindBegin.
	Begin    *begin             `json:"begin,omitempty"`
	Attempts map[string]attempt `json:"attempts,omitempty"`
	// Index and Name are of the instruction, for kindStart and kindDone; Saved and Output for kindDone.
	Index  int    `json:"index,omitempty"`
	Name   string `json:"name,omitempty"`
	Saved  bool   `json:"saved,omitempty"`
	Output []byte `json:"output,omitempty"`
	// Succeeded, Final and Message are for kindEnd.
	Succeeded bool   `json:"succeeded,omitempty"`
	Final     bool   `json:"final,omitempty"`
	Message   string `json:"message,omitempty"`
}

type kind string

const (
	kindBegin    kind = "begin"    // an attempt begins
	kindFiles    kind = "files"    // all files are in place
	kindStart    kind = "start"    // an instruction is about to run
	kindDone     kind = "done"     // an instruction has run and succeeded, or is the one that failed
	kindEnd      kind = "end"      // the attempt is over
	kindReported kind = "reported" // the source knows the outcome
)

// begin identifies an attempt.
type begin struct {
	Checksum string `json:"checksum"`
	UID      string `json:"uid"`
	// Revision is the plan-revision of the delivery; 0 where only checksums decide.
	Revision int `json:"revision"`
	// Attempt is the number that instructions see. It stays when an attempt goes on after a crash.
	Attempt int `json:"attempt"`
	// Tries counts the attempts of this delivery, this one included.
	Tries int `json:"tries"`
	// FailuresBefore and SuccessesBefore are the counts the source showed when the delivery came.
	FailuresBefore  int `json:"failuresBefore"`
	SuccessesBefore int `json:"successesBefore"`
}

// attempt is what is remembered of a plan's last attempt.
type attempt struct {
	Number    int       `json:"number"`
	Succeeded bool      `json:"succeeded"`
	Time      time.Time `json:"time"`
}

// record is what the journal tells of the last attempt.
type record struct {
	begin
	Started   time.Time
	FilesDone bool
	// Done is how many instructions have succeeded.
	Done    int
	Outputs map[string][]byte
	Ended   time.Time
	// Succeeded, Final and Message tell the outcome; a final failure is one that no other attempt can cure.
	Succeeded bool
	Final     bool
	Message   string
	// Reported is when the source came to know the outcome.
	Reported time.Time
}

func (r record) unfinished() bool {
	return r.Checksum != "" && r.Ended.IsZero()
}

// is tells whether the record is of this plan of this source.
func (r record) is(t target) bool {
	return r.Checksum != "" && r.Checksum == t.Checksum && r.UID == t.UID
}

// journal remembers on disk what was done. A line that was cut off by a crash does not count.
type journal struct {
	host     host.Host
	path     string
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
			return &journal{host: h, path: path, attempts: map[string]attempt{}}, fmt.Errorf("decoding journal %s: %w", path, err)
		}
		j.replay(e)
	}
	if len(whole) < len(raw) {
		// The next line must not be joined to the half one.
		if err := h.WriteFile(path, whole, host.Private(0o600)); err != nil {
			return j, fmt.Errorf("mending journal %s: %w", path, err)
		}
	}
	return j, nil
}

func (j *journal) replay(e entry) {
	r := &j.record
	switch e.Kind {
	case kindBegin:
		if e.Begin != nil {
			*r = record{begin: *e.Begin, Started: e.Time, Outputs: map[string][]byte{}}
			if e.Attempts != nil {
				j.attempts = e.Attempts
			}
		}
	case kindFiles:
		r.FilesDone = true
	case kindDone:
		if e.Saved && r.Outputs != nil {
			r.Outputs[e.Name] = e.Output
		}
		r.Done = e.Index + 1
	case kindEnd:
		r.Ended, r.Succeeded, r.Final, r.Message = e.Time, e.Succeeded, e.Final, e.Message
		j.attempts[r.Checksum] = attempt{Number: r.Attempt, Succeeded: r.Succeeded, Time: e.Time}
	case kindReported:
		r.Reported = e.Time
	}
}

// start begins an attempt: a new journal with what must be remembered of the old one.
func (j *journal) start(b begin) error {
	now := time.Now().UTC()
	attempts := maps.Clone(j.attempts)
	attempts[b.Checksum] = attempt{Number: b.Attempt, Time: now}
	for len(attempts) > maxRemembered {
		oldest := ""
		for checksum, a := range attempts {
			if oldest == "" || a.Time.Before(attempts[oldest].Time) {
				oldest = checksum
			}
		}
		delete(attempts, oldest)
	}
	e := entry{Kind: kindBegin, Time: now, Begin: &b, Attempts: attempts}
	line, err := encodeEntry(e)
	if err != nil {
		return err
	}
	j.replay(e)
	if err := j.host.WriteFile(j.path, line, host.Private(0o600)); err != nil {
		return fmt.Errorf("beginning journal: %w", err)
	}
	return nil
}

// add writes one more line. Memory follows even when the disk does not, so that this process knows what it did.
func (j *journal) add(e entry) error {
	e.Time = time.Now().UTC()
	line, err := encodeEntry(e)
	if err != nil {
		return err
	}
	j.replay(e)
	if err := j.host.AppendFile(j.path, line); err != nil {
		return fmt.Errorf("writing journal: %w", err)
	}
	return nil
}

func encodeEntry(e entry) ([]byte, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding journal: %w", err)
	}
	return append(line, '\n'), nil
}
