package timelines

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/hub/util/message"
)

// The kinds of subjects.
const (
	KindCluster = "Cluster"
	KindMachine = "Machine"
)

// Bounds of a record.
const (
	maxRecordBytes  = 512 << 10
	maxPhases       = 50
	maxGone         = 50
	maxPhaseMessage = 300
)

// Record is the timeline of a cluster.
type Record struct {
	// Observed is the time until which transitions have Events.
	Observed metav1.Time `json:"observed"`
	// Subjects are the cluster and its machines, with the last maxGone deleted ones, and the last maxOperations operations.
	Subjects []Subject `json:"subjects"`
}

// Subject is the cluster, a machine or an operation.
type Subject struct {
	// Kind is Cluster, Machine or the kind of an operation.
	Kind string `json:"kind"`
	// Name is that of the object.
	Name string `json:"name"`
	// UID is that of the object. It changes when the object is moved from another hub; the subject stays the same then.
	UID types.UID `json:"uid,omitempty"`
	// Deleting is true from the deletion timestamp on: another UID after that is another subject of the same name.
	Deleting bool `json:"deleting,omitempty"`
	// Pool is the machine pool; empty for the cluster and for custom machines.
	Pool string `json:"pool,omitempty"`
	// Roles of a machine are among etcd, control-plane and worker.
	Roles []string `json:"roles,omitempty"`
	// Created is the creation timestamp, Gone when the object was first missing, or when the operation ended.
	Created metav1.Time  `json:"created"`
	Gone    *metav1.Time `json:"gone,omitempty"`
	// Phases are in the order of time; the last one is the present phase.
	Phases []Phase `json:"phases"`
	// Dropped is the number of older phases that were dropped to keep the bounds.
	Dropped int `json:"dropped,omitempty"`

	// part is the part of the stored record that has the subject.
	part int
}

// Phase is a span of time in which a subject waited for one thing.
type Phase struct {
	// Name is the reason, such as ApplyingPlan.
	Name  string      `json:"phase"`
	Start metav1.Time `json:"start"`
	// End is nil for the present phase. Seconds is the duration of an ended one.
	End     *metav1.Time `json:"end,omitempty"`
	Seconds int64        `json:"seconds,omitempty"`
	Outcome Outcome      `json:"outcome"`
	// Message is the last one of the phase.
	Message string `json:"message,omitempty"`
}

// Outcome is the state or the result of a phase.
type Outcome string

// The outcomes of phases.
const (
	// OutcomeRunning is a present phase, OutcomeReady one in which nothing is being waited for.
	OutcomeRunning Outcome = "running"
	OutcomeReady   Outcome = "ready"
	// OutcomeFailed is a phase in which a user has to act, or that was followed by such a phase.
	OutcomeFailed Outcome = "failed"
	// OutcomeDone is a phase that ended successfully.
	OutcomeDone Outcome = "done"
	// OutcomeGone is a phase that ended because its subject was deleted.
	OutcomeGone Outcome = "gone"
)

// Present returns the present phase of a subject; false for one that is gone.
func (s *Subject) Present() (Phase, bool) {
	if s.Gone != nil || len(s.Phases) == 0 {
		return Phase{}, false
	}
	return s.Phases[len(s.Phases)-1], true
}

// Index returns the positions of the subjects that are not gone, by kind and name.
func (r *Record) Index() map[[2]string]int {
	out := make(map[[2]string]int, len(r.Subjects))
	for i, s := range r.Subjects {
		if s.Gone == nil {
			out[[2]string{s.Kind, s.Name}] = i
		}
	}
	return out
}

// Subject returns the subject of an object, which it adds if there is none. index is that of the record.
func (r *Record) Subject(index map[[2]string]int, kind string, object metav1.Object) *Subject {
	i, known := index[[2]string{kind, object.GetName()}]
	if !known || r.Subjects[i].UID != object.GetUID() && r.Subjects[i].Deleting {
		i = len(r.Subjects)
		r.Subjects = append(r.Subjects, Subject{Kind: kind, Name: object.GetName(), Created: object.GetCreationTimestamp(), part: r.freePart()})
	}
	s := &r.Subjects[i]
	s.UID, s.Deleting = object.GetUID(), object.GetDeletionTimestamp() != nil
	return s
}

// SetPhase sets the present phase of a subject, and returns whether that changed anything. The start of the phase may be zero for unknown.
func (s *Subject) SetPhase(p Phase, now time.Time) bool {
	p.Message = message.Bound(p.Message, maxPhaseMessage)
	if len(s.Phases) > 0 {
		last := &s.Phases[len(s.Phases)-1]
		if last.End == nil && last.Name == p.Name {
			changed := last.Message != p.Message || last.Outcome != p.Outcome
			last.Message, last.Outcome = p.Message, p.Outcome
			return changed
		}
	}
	start := s.startOf(p, now)
	s.EndPhase(start, p.Outcome)
	s.Phases = append(s.Phases, Phase{Name: p.Name, Start: start, Outcome: p.Outcome, Message: p.Message})
	s.trim(maxPhases)
	return true
}

// startOf returns when a phase began. The condition has the time of the last change of its status, which may be before the hub was started;
// a change of the reason alone has no time, and is recorded as happening now.
func (s *Subject) startOf(p Phase, now time.Time) metav1.Time {
	if len(s.Phases) == 0 {
		return s.Created
	}
	if last := s.Phases[len(s.Phases)-1]; p.Start.After(last.Start.Time) && p.Start.Time.Before(now) {
		return p.Start
	}
	return metav1.NewTime(now.Truncate(time.Second))
}

// EndPhase ends the present phase; next is the outcome of the one that follows.
func (s *Subject) EndPhase(at metav1.Time, next Outcome) {
	if len(s.Phases) == 0 {
		return
	}
	last := &s.Phases[len(s.Phases)-1]
	if last.End != nil {
		return
	}
	last.End = &at
	last.Seconds = int64(at.Sub(last.Start.Time).Seconds())
	switch {
	case next == OutcomeGone:
		last.Outcome = OutcomeGone
	case last.Outcome == OutcomeRunning && next == OutcomeFailed:
		last.Outcome = OutcomeFailed
	case last.Outcome != OutcomeFailed:
		last.Outcome = OutcomeDone
	}
}

// trim drops the oldest phases.
func (s *Subject) trim(most int) {
	if over := len(s.Phases) - most; over > 0 {
		s.Phases = slices.Delete(s.Phases, 0, over)
		s.Dropped += over
	}
}

// dropGone drops the oldest deleted subjects beyond maxGone.
func (r *Record) dropGone() {
	var gone []metav1.Time
	for _, s := range r.Subjects {
		if s.Gone != nil && !s.IsOperation() {
			gone = append(gone, *s.Gone)
		}
	}
	if len(gone) <= maxGone {
		return
	}
	slices.SortFunc(gone, func(a, b metav1.Time) int { return b.Compare(a.Time) })
	oldest := gone[maxGone-1]
	r.Subjects = slices.DeleteFunc(r.Subjects, func(s Subject) bool {
		return s.Gone != nil && !s.IsOperation() && s.Gone.Time.Before(oldest.Time)
	})
}
