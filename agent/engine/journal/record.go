package journal

import (
	"maps"
	"slices"
	"time"

	"github.com/drover-dev/drover/agent/engine/filestate"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// Record is the last attempt as the journal has it. The names in JSON are the file format of KindSnapshot and never change.
//
// An attempt moves through these states; each row is true from the entry on:
//
//	state         entry           Checksum  Ended  Reported  what a restart does
//	none          (no begin)      ""        zero   zero      decides from what the source says
//	running       begin, resume   set       zero   zero      goes on from FilesPlaced and InstructionsDone (entry resume)
//	paused        pause           set       zero   zero      waits for the hub; Paused is set until the next entry (entry unpause)
//	rolling back  undo, undone    set       zero   zero      goes on restoring from FilesRestored
//	ended         end             set       set    zero      reports the outcome
//	reported      reported        set       set    set       nothing, until the source forgets the outcome
type Record struct {
	AttemptID
	DeliveredPlan
	// Started is when the attempt began.
	Started time.Time `json:"started"`
	// Interrupted counts how often the attempt went on after a restart of the agent.
	Interrupted int `json:"interrupted,omitempty"`
	// Paused is set while the hub has paused the attempt.
	Paused bool `json:"paused,omitempty"`
	// FilesPlaced is how many files are in place for certain, from the first of the plan on.
	FilesPlaced int `json:"files,omitempty"`
	// FilesDone says that all files are in place.
	FilesDone bool `json:"filesDone,omitempty"`
	// Backups is what was there before, by the index of the file.
	Backups map[int]filestate.Backup `json:"kept,omitempty"`
	// InstructionsDone is how many instructions have succeeded.
	InstructionsDone int `json:"done,omitempty"`
	// InstructionsStarted is how many instructions were started.
	InstructionsStarted int `json:"begun,omitempty"`
	// Outputs are the outputs to report, by the name of the instruction.
	Outputs map[string][]byte `json:"outputs,omitempty"`
	// Runs are the instructions that were started, in their order.
	Runs []InstructionRun `json:"runs,omitempty"`
	// RollingBack is set while files are restored, the last first.
	RollingBack bool `json:"undoing,omitempty"`
	// FilesRestored is how many files are restored.
	FilesRestored int `json:"undone,omitempty"`
	// Ended is when the attempt ended; zero while it goes on.
	Ended time.Time `json:"ended,omitzero"`
	// Result is how it ended; Final, Message and Summary are set while RollingBack, too.
	Result
	// Reported is when the source confirmed the outcome; zero before.
	Reported time.Time `json:"reported,omitzero"`
}

// Unfinished reports whether the attempt has begun and not ended.
func (r Record) Unfinished() bool {
	return r.Checksum != "" && r.Ended.IsZero()
}

// Unreported reports whether the attempt has ended with an outcome that the source does not know yet.
func (r Record) Unreported() bool {
	return !r.Unfinished() && r.Reported.IsZero() && !r.Canceled
}

// Is reports whether the record is about this plan.
func (r Record) Is(id source.PlanID) bool {
	return r.Checksum != "" && r.PlanID() == id
}

// Same reports whether both are records of the same attempt, perhaps at different moments.
func (r Record) Same(other Record) bool {
	return r.AttemptID == other.AttemptID && r.Started.Equal(other.Started)
}

// Snapshot is what the source held while the attempt ran, for as long as the source itself cannot be reached.
func (r Record) Snapshot() source.Snapshot {
	s := source.Snapshot{UID: r.UID, Delivery: plans.Delivery{Plan: r.Plan, MaxFailures: r.MaxFailures, ProbePeriod: r.ProbePeriod}}
	s.Status.SuccessCount, s.Status.FailureCount = r.SuccessesBefore, r.FailuresBefore
	if r.Revision > 0 {
		s.Status.State, s.Status.Revision = plans.StateInProgress, r.Revision
	}
	return s
}

// makeMaps replaces nil maps.
func (r *Record) makeMaps() {
	if r.Backups == nil {
		r.Backups = map[int]filestate.Backup{}
	}
	if r.Outputs == nil {
		r.Outputs = map[string][]byte{}
	}
}

func (r Record) clone() Record {
	r.Backups, r.Outputs, r.Runs = maps.Clone(r.Backups), maps.Clone(r.Outputs), slices.Clone(r.Runs)
	return r
}

// replay applies an entry about the steps of the attempt.
func (r *Record) replay(e Entry) {
	r.makeMaps()
	r.Paused = e.Kind == KindPause
	switch e.Kind {
	case KindResume:
		r.Interrupted++
	case KindFile:
		r.FilesPlaced = e.Index
		if _, known := r.Backups[e.Index]; !known && e.Backup != nil {
			r.Backups[e.Index] = *e.Backup
		}
	case KindFiles:
		r.FilesDone = true
	case KindStart:
		r.InstructionsStarted = e.Index + 1
		r.Runs = append(r.Runs, InstructionRun{Index: e.Index, Name: e.Name, Started: e.Time, RunDir: e.RunDir})
	case KindDone:
		if e.Saved {
			r.Outputs[e.Name] = e.Output
		}
		if n := len(r.Runs); n > 0 && r.Runs[n-1].Index == e.Index {
			r.Runs[n-1].Ended, r.Runs[n-1].ExitCode, r.Runs[n-1].TimedOut = e.Time, e.ExitCode, e.TimedOut
		}
		if e.ExitCode == 0 && !e.TimedOut {
			r.InstructionsDone = e.Index + 1
		}
	case KindRollback:
		r.RollingBack, r.Final, r.Message, r.Summary = true, e.Final, e.Message, e.Summary
	case KindRestored:
		r.FilesRestored++
	case KindEnd:
		r.Ended, r.RollingBack, r.Result = e.Time, false, e.Result
	}
}
