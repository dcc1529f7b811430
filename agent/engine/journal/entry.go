package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/drover-dev/drover/agent/engine/filestate"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// Entry is one line of the journal. It is synced to disk before the step that it announces begins, or after the step that it records is
// done. The names in JSON are the file format and never change.
type Entry struct {
	// Kind is what the entry says. The comments of the other fields name the kinds that use them.
	Kind Kind `json:"kind"`
	// Time is when the entry was made; filled in when it is written. On disk it is in UTC.
	Time time.Time `json:"time"`
	// Begin identifies the attempt, for KindBegin.
	Begin *AttemptID `json:"begin,omitempty"`
	// DeliveredPlan is what the attempt applies, for KindBegin.
	DeliveredPlan
	// Record is the last attempt of the older journal, for KindSnapshot.
	Record *Record `json:"record,omitempty"`
	// Attempts are the last attempts of the older journal by the checksum of their plan, for KindSnapshot.
	Attempts map[string]LastAttempt `json:"attempts,omitempty"`
	// Index counts from 0: the file of KindFile, the instruction of KindStart and KindDone.
	Index int `json:"index,omitempty"`
	// Name is that of the instruction, for KindStart and KindDone; it may be empty.
	Name string `json:"name,omitempty"`
	// RunDir is where the run of the instruction keeps its output, for KindStart.
	RunDir string `json:"spool,omitempty"`
	// ExitCode is that of the instruction, for KindDone; -1 when a signal ended it or it could not be started.
	ExitCode int `json:"exit,omitempty"`
	// TimedOut says that the instruction was stopped because of its timeout, for KindDone.
	TimedOut bool `json:"late,omitempty"`
	// Saved is set for KindDone when Output is to be reported.
	Saved bool `json:"saved,omitempty"`
	// Output is the standard output of the instruction, for KindDone with Saved.
	Output []byte `json:"output,omitempty"`
	// Backup is what was at the path of a file, for KindFile; nil when an earlier line has it.
	Backup *filestate.Backup `json:"was,omitempty"`
	// Result is for KindEnd; its Final, Message and Summary also for KindRollback.
	Result
}

// Result is how an attempt ended.
type Result struct {
	// Succeeded says that the plan was applied.
	Succeeded bool `json:"succeeded,omitempty"`
	// Final marks a failure that no other attempt can cure.
	Final bool `json:"final,omitempty"`
	// Canceled says that the hub has canceled the attempt.
	Canceled bool `json:"canceled,omitempty"`
	// Incomplete says that some programs of a canceled attempt could not be stopped.
	Incomplete bool `json:"incomplete,omitempty"`
	// RolledBack says that the files of the failed attempt were restored.
	RolledBack bool `json:"rolledBack,omitempty"`
	// Message is why the attempt failed, for the hub; it may quote the output of programs.
	Message string `json:"message,omitempty"`
	// Summary is Message without the output of programs, for logs and people.
	Summary string `json:"summary,omitempty"`
}

// Kind is what an Entry says.
type Kind string

// The kinds of entries, in the order in which an attempt writes them:
//
//	begin -> file... -> files -> (start -> done)... -> end -> reported
//
// resume, pause and unpause may come anywhere between begin and end, a rollback before end.
const (
	KindSnapshot Kind = "state"    // first line of a compacted journal: what the older one held
	KindBegin    Kind = "begin"    // an attempt begins
	KindResume   Kind = "resume"   // the attempt goes on after a restart of the agent
	KindPause    Kind = "pause"    // the hub has paused the attempt; an instruction may still run
	KindUnpause  Kind = "unpause"  // the hub has ended the pause
	KindFile     Kind = "file"     // a file is about to be changed; all files before it are in place
	KindFiles    Kind = "files"    // all files are in place
	KindStart    Kind = "start"    // an instruction is about to run; its folder is ready
	KindDone     Kind = "done"     // an instruction has ended; when it failed, the attempt ends too
	KindRollback Kind = "undo"     // the attempt has failed and its files are about to be restored
	KindRestored Kind = "undone"   // one file is restored
	KindEnd      Kind = "end"      // the attempt is over
	KindReported Kind = "reported" // the source knows the outcome
)

// AttemptID identifies an attempt at a plan, with the counters that the source showed before it.
type AttemptID struct {
	// Checksum is that of the plan.
	Checksum string `json:"checksum"`
	// UID is that of the source that delivered it.
	UID string `json:"uid"`
	// Revision is the plan-revision of the delivery; 0 in the checksum protocol.
	Revision int `json:"revision"`
	// Attempt is the number that instructions see. It stays when an attempt goes on after a crash.
	Attempt int `json:"attempt"`
	// Tries counts the attempts of this delivery, this one included.
	Tries int `json:"tries"`
	// FailuresBefore is failure-count of the source when the delivery came.
	FailuresBefore int `json:"failuresBefore"`
	// SuccessesBefore is success-count of the source when the delivery came.
	SuccessesBefore int `json:"successesBefore"`
}

// Delivery is the part that attempts at the same delivery share.
func (a AttemptID) Delivery() AttemptID {
	return AttemptID{Checksum: a.Checksum, UID: a.UID, Revision: a.Revision}
}

// PlanID is the plan of the attempt.
func (a AttemptID) PlanID() source.PlanID {
	return source.PlanID{UID: a.UID, Checksum: a.Checksum}
}

// RunName names the run of the i-th instruction. It is unique among the runs of one engine that exist at the same time.
func (a AttemptID) RunName(i int) string {
	return fmt.Sprintf("%s-%d-%d", plans.ShortChecksum(a.Checksum), a.Attempt, i)
}

// LastAttempt is what is remembered of the last attempt at a plan.
type LastAttempt struct {
	// Number is AttemptID.Attempt.
	Number int `json:"number"`
	// Succeeded says that the plan was applied.
	Succeeded bool `json:"succeeded"`
	// Time is when it ended, or began when it did not end.
	Time time.Time `json:"time"`
}

// DeliveredPlan is what an attempt needs of its delivery to go on while the source cannot be reached.
type DeliveredPlan struct {
	// Plan is the raw plan.
	Plan []byte `json:"plan,omitempty"`
	// MaxFailures is plans.Delivery.MaxFailures.
	MaxFailures int `json:"maxFailures,omitempty"`
	// ProbePeriod is the pause between two checks of a probe, in nanoseconds on disk.
	ProbePeriod time.Duration `json:"probePeriod,omitempty"`
}

// encode stamps entries and makes lines of them. In memory a time keeps its monotonic clock, so that setting the wall clock changes no
// back-off.
func encode(entries []Entry) ([]byte, error) {
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
