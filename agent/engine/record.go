package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// entry is one line of the journal. Each is synced to disk before what it announces is begun, or after what it tells was done.
type entry struct {
	Kind kind      `json:"kind"`
	Time time.Time `json:"time"`
	// Begin and what the delivery held are set for kindBegin. Unsure tells that the line was written before it was known whether the
	// source lets the attempt begin; any line but kindStart that follows means that it does.
	Begin *begin `json:"begin,omitempty"`
	delivered
	Unsure bool `json:"unsure,omitempty"`
	// Record and Attempts are set for kindState.
	Record   *record            `json:"record,omitempty"`
	Attempts map[string]attempt `json:"attempts,omitempty"`
	// Index and Name are of the instruction, for kindStart and kindDone; Index is of the file for kindFile. Run, Saved and Output are
	// for kindDone.
	Index  int    `json:"index,omitempty"`
	Name   string `json:"name,omitempty"`
	Spool  string `json:"spool,omitempty"`
	Exit   int    `json:"exit,omitempty"`
	Late   bool   `json:"late,omitempty"`
	Saved  bool   `json:"saved,omitempty"`
	Output []byte `json:"output,omitempty"`
	// Was is what was at the path of a file, for kindFile.
	Was *was `json:"was,omitempty"`
	// The rest is for kindEnd; Final and Message also for kindUndo.
	Succeeded  bool   `json:"succeeded,omitempty"`
	Final      bool   `json:"final,omitempty"`
	Canceled   bool   `json:"canceled,omitempty"`
	Incomplete bool   `json:"incomplete,omitempty"`
	RolledBack bool   `json:"rolledBack,omitempty"`
	Message    string `json:"message,omitempty"`
	Summary    string `json:"summary,omitempty"`
}

type kind string

const (
	kindState    kind = "state"    // what an older journal held
	kindBegin    kind = "begin"    // an attempt begins
	kindVoid     kind = "void"     // it does not, after all; nothing was done for it
	kindResume   kind = "resume"   // it goes on after the agent had stopped
	kindPause    kind = "pause"    // the hub lets it wait
	kindFile     kind = "file"     // a file is about to change; all before it are in place
	kindFiles    kind = "files"    // all files are in place
	kindStart    kind = "start"    // an instruction is about to run in a folder that is ready
	kindDone     kind = "done"     // an instruction has run; where it failed, the attempt ends
	kindUndo     kind = "undo"     // the attempt has failed and its files are about to be put back
	kindUndone   kind = "undone"   // one of them is back
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

// delivery is what attempts at the same delivery have in common.
func (b begin) delivery() begin {
	return begin{Checksum: b.Checksum, UID: b.UID, Revision: b.Revision}
}

func (b begin) target() target {
	return target{UID: b.UID, Checksum: b.Checksum}
}

// attempt is what is remembered of a plan's last attempt.
type attempt struct {
	Number    int       `json:"number"`
	Succeeded bool      `json:"succeeded"`
	Time      time.Time `json:"time"`
}

// was is what a path held before a plan changed it. Its zero value says that nothing was there.
type was struct {
	// Copy is a file with the former content, Aside the name to which a folder was moved, Link the target of a symbolic link; Dir is a
	// folder whose attributes changed.
	Copy  string `json:"copy,omitempty"`
	Aside string `json:"aside,omitempty"`
	Link  string `json:"link,omitempty"`
	Dir   bool   `json:"dir,omitempty"`
	// Unknown is set for what cannot be put back.
	Unknown bool            `json:"unknown,omitempty"`
	Attrs   host.Attributes `json:"attrs"`
}

// delivered is what an attempt needs of its delivery, so that it can go on while the source cannot be asked.
type delivered struct {
	Plan        []byte        `json:"plan,omitempty"`
	MaxFailures int           `json:"maxFailures,omitempty"`
	ProbePeriod time.Duration `json:"probePeriod,omitempty"`
}

// record is what the journal tells of the last attempt.
type record struct {
	begin
	delivered
	Unsure  bool      `json:"unsure,omitempty"`
	Started time.Time `json:"started"`
	// Interrupted counts how often the attempt went on after the agent had stopped.
	Interrupted int `json:"interrupted,omitempty"`
	// Paused is set while the hub lets it wait.
	Paused bool `json:"paused,omitempty"`
	// Files is how many files are in place, FilesDone that all are. Kept is what was there before, by index.
	Files     int         `json:"files,omitempty"`
	FilesDone bool        `json:"filesDone,omitempty"`
	Kept      map[int]was `json:"kept,omitempty"`
	// Done is how many instructions have succeeded, Begun the index of the one that was begun plus 1.
	Done    int               `json:"done,omitempty"`
	Begun   int               `json:"begun,omitempty"`
	Outputs map[string][]byte `json:"outputs,omitempty"`
	Runs    []InstructionRun  `json:"runs,omitempty"`
	// Undoing is set while files are put back, the last first; Undone is how many are.
	Undoing bool      `json:"undoing,omitempty"`
	Undone  int       `json:"undone,omitempty"`
	Ended   time.Time `json:"ended,omitzero"`
	// Succeeded, Final, Canceled and Message tell the outcome; a final failure is one that no other attempt can cure. Summary is
	// Message without what programs said.
	Succeeded  bool   `json:"succeeded,omitempty"`
	Final      bool   `json:"final,omitempty"`
	Canceled   bool   `json:"canceled,omitempty"`
	Incomplete bool   `json:"incomplete,omitempty"`
	RolledBack bool   `json:"rolledBack,omitempty"`
	Message    string `json:"message,omitempty"`
	Summary    string `json:"summary,omitempty"`
	// Reported is when the source came to know the outcome.
	Reported time.Time `json:"reported,omitzero"`
}

func (r record) unfinished() bool {
	return r.Checksum != "" && r.Ended.IsZero()
}

// is tells whether the record is of this plan of this source.
func (r record) is(t target) bool {
	return r.Checksum != "" && r.target() == t
}

func (r *record) fill() {
	if r.Kept == nil {
		r.Kept = map[int]was{}
	}
	if r.Outputs == nil {
		r.Outputs = map[string][]byte{}
	}
}

func (r record) clone() record {
	r.Kept, r.Outputs, r.Runs = maps.Clone(r.Kept), maps.Clone(r.Outputs), slices.Clone(r.Runs)
	return r
}

// replay takes over a line that tells of work.
func (r *record) replay(e entry) {
	if e.Kind != kindStart {
		r.Unsure = false
	}
	r.fill()
	r.Paused = e.Kind == kindPause
	switch e.Kind {
	case kindResume:
		r.Interrupted++
	case kindFile:
		r.Files = e.Index
		if _, known := r.Kept[e.Index]; !known && e.Was != nil {
			r.Kept[e.Index] = *e.Was
		}
	case kindFiles:
		r.FilesDone = true
	case kindStart:
		r.Begun = e.Index + 1
		r.Runs = append(r.Runs, InstructionRun{Index: e.Index, Name: e.Name, Started: e.Time, Spool: e.Spool})
	case kindDone:
		if e.Saved {
			r.Outputs[e.Name] = e.Output
		}
		if n := len(r.Runs); n > 0 && r.Runs[n-1].Index == e.Index {
			r.Runs[n-1].Ended, r.Runs[n-1].ExitCode, r.Runs[n-1].TimedOut = e.Time, e.Exit, e.Late
		}
		if e.Exit == 0 && !e.Late {
			r.Done = e.Index + 1
		}
	case kindUndo:
		r.Undoing, r.Final, r.Message, r.Summary = true, e.Final, e.Message, e.Summary
	case kindUndone:
		r.Undone++
	case kindEnd:
		r.Ended, r.Undoing = e.Time, false
		r.Succeeded, r.Final, r.Canceled, r.Incomplete, r.RolledBack = e.Succeeded, e.Final, e.Canceled, e.Incomplete, e.RolledBack
		r.Message, r.Summary = e.Message, e.Summary
	}
}

// attemptOf is the record as people see it.
func attemptOf(source string, r record) Attempt {
	return Attempt{
		Source: source, Checksum: r.Checksum, Revision: r.Revision, Number: r.Attempt, Try: r.Tries, Started: r.Started.UTC(), Ended: utc(r.Ended),
		Succeeded: r.Succeeded, RolledBack: r.RolledBack, Interrupted: r.Interrupted, Message: r.Summary, Instructions: slices.Clone(r.Runs),
	}
}

// snapshot is what the source held when the attempt was going on, for as long as the source itself cannot be asked.
func (r record) snapshot() Snapshot {
	s := Snapshot{UID: r.UID, Delivery: plans.Delivery{Plan: r.Plan, MaxFailures: r.MaxFailures, ProbePeriod: r.ProbePeriod}}
	s.Status.SuccessCount, s.Status.FailureCount = r.SuccessesBefore, r.FailuresBefore
	if r.Revision > 0 {
		s.Status.State, s.Status.Revision = plans.StateInProgress, r.Revision
	}
	return s
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
