package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/hub/message"
)

// Bounds of a record. A ConfigMap may hold 1 MiB.
const (
	maxRecordBytes  = 512 << 10
	maxPhases       = 50
	maxGone         = 50
	maxPhaseMessage = 300
)

// Record is a cluster's timeline, as the ConfigMap holds it in JSON.
type Record struct {
	// Observed is up to when transitions were told as Events.
	Observed metav1.Time `json:"observed"`
	// Subjects are the cluster and its machines, those that are gone among them.
	Subjects []Subject `json:"subjects"`
}

// Subject is something that goes through phases.
type Subject struct {
	// Kind is Cluster or Machine.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// UID and Deleting tell it from another of the same name, which comes after it was deleted. An object that was moved from another hub has
	// another UID and is the same.
	UID      types.UID `json:"uid,omitempty"`
	Deleting bool      `json:"deleting,omitempty"`
	// Pool and Roles of a machine.
	Pool  string   `json:"pool,omitempty"`
	Roles []string `json:"roles,omitempty"`
	// Created is when it was made, Gone when it was first missed.
	Created metav1.Time  `json:"created"`
	Gone    *metav1.Time `json:"gone,omitempty"`
	// Phases are in the order of time; the last is the present one. Dropped is how many older ones were left out to save room.
	Phases  []Phase `json:"phases"`
	Dropped int     `json:"dropped,omitempty"`
}

// Phase is a span of time in which a subject waited for one thing.
type Phase struct {
	// Name is the reason, such as ApplyingPlan.
	Name  string      `json:"phase"`
	Start metav1.Time `json:"start"`
	// End is unset for the present phase; Seconds is how long the phase took.
	End     *metav1.Time `json:"end,omitempty"`
	Seconds int64        `json:"seconds,omitempty"`
	Outcome Outcome      `json:"outcome"`
	// Message is the last one of the phase.
	Message string `json:"message,omitempty"`
}

// Outcome is what became of a phase.
type Outcome string

// The outcomes of phases.
const (
	// OutcomeRunning is a phase that goes on, OutcomeReady one in which nothing is waited for.
	OutcomeRunning Outcome = "running"
	OutcomeReady   Outcome = "ready"
	// OutcomeFailed is a phase in which somebody has to act, or one that ended in such a phase.
	OutcomeFailed Outcome = "failed"
	// OutcomeDone is a phase that ended well.
	OutcomeDone Outcome = "done"
	// OutcomeGone is a phase that ended because its subject went away.
	OutcomeGone Outcome = "gone"
)

// Present is the phase that the subject is in; false for one that is gone.
func (s *Subject) Present() (Phase, bool) {
	if s.Gone != nil || len(s.Phases) == 0 {
		return Phase{}, false
	}
	return s.Phases[len(s.Phases)-1], true
}

// index finds the subjects that are not gone, by kind and name.
func (r *Record) index() map[[2]string]int {
	out := make(map[[2]string]int, len(r.Subjects))
	for i, s := range r.Subjects {
		if s.Gone == nil {
			out[[2]string{s.Kind, s.Name}] = i
		}
	}
	return out
}

// subject finds the subject of an object, or adds it.
func (r *Record) subject(index map[[2]string]int, kind string, object metav1.Object) *Subject {
	i, known := index[[2]string{kind, object.GetName()}]
	if !known || r.Subjects[i].UID != object.GetUID() && r.Subjects[i].Deleting {
		i = len(r.Subjects)
		r.Subjects = append(r.Subjects, Subject{Kind: kind, Name: object.GetName(), Created: object.GetCreationTimestamp()})
	}
	s := &r.Subjects[i]
	s.UID, s.Deleting = object.GetUID(), object.GetDeletionTimestamp() != nil
	return s
}

// enter puts a subject into a phase and tells whether that changed anything.
func (s *Subject) enter(p present, now time.Time) bool {
	p.message = message.Bound(p.message, maxPhaseMessage)
	if len(s.Phases) > 0 {
		last := &s.Phases[len(s.Phases)-1]
		if last.End == nil && last.Name == p.name {
			changed := last.Message != p.message || last.Outcome != p.outcome
			last.Message, last.Outcome = p.message, p.outcome
			return changed
		}
	}
	start := s.began(p, now)
	s.leave(start, p.outcome)
	s.Phases = append(s.Phases, Phase{Name: p.name, Start: start, Outcome: p.outcome, Message: p.message})
	s.trim(maxPhases)
	return true
}

// began says when a phase began. A condition knows when its status changed, which may be before the hub was started; where only its reason
// changed, that is just now.
func (s *Subject) began(p present, now time.Time) metav1.Time {
	if len(s.Phases) == 0 {
		return s.Created
	}
	if last := s.Phases[len(s.Phases)-1]; p.since.After(last.Start.Time) && p.since.Time.Before(now) {
		return p.since
	}
	return metav1.NewTime(now.Truncate(time.Second))
}

// leave ends the present phase.
func (s *Subject) leave(at metav1.Time, next Outcome) {
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

func (s *Subject) trim(most int) {
	if over := len(s.Phases) - most; over > 0 {
		s.Phases = slices.Delete(s.Phases, 0, over)
		s.Dropped += over
	}
}

// encode gives the JSON of the record, after it was cut down to what a ConfigMap has room for.
func (r *Record) encode() (string, error) {
	r.forgetGone()
	for most := maxPhases; ; most /= 2 {
		for i := range r.Subjects {
			r.Subjects[i].trim(max(most, 1))
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return "", fmt.Errorf("encoding the timeline: %w", err)
		}
		if len(raw) <= maxRecordBytes || most <= 1 {
			return string(raw), nil
		}
	}
}

// forgetGone keeps those of the subjects that are gone which went last.
func (r *Record) forgetGone() {
	var gone []metav1.Time
	for _, s := range r.Subjects {
		if s.Gone != nil {
			gone = append(gone, *s.Gone)
		}
	}
	if len(gone) <= maxGone {
		return
	}
	slices.SortFunc(gone, func(a, b metav1.Time) int { return b.Compare(a.Time) })
	oldest := gone[maxGone-1]
	r.Subjects = slices.DeleteFunc(r.Subjects, func(s Subject) bool { return s.Gone != nil && s.Gone.Time.Before(oldest.Time) })
}

// Decode reads a record.
func Decode(text string) (*Record, error) {
	record := &Record{}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(record); err != nil {
		return nil, fmt.Errorf("decoding the timeline: %w", err)
	}
	return record, nil
}
