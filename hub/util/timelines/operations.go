package timelines

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxOperations bounds the operations of a record: those that have not ended come first, then the newest.
const maxOperations = 20

// IsOperation reports whether a subject is an operation; its Kind is that of the operation.
func (s *Subject) IsOperation() bool { return s.Kind != KindCluster && s.Kind != KindMachine }

// Operation is what a record has of an operation.
type Operation struct {
	// Kind is that of the object.
	Kind   string
	Object metav1.Object
	// Phase is the present phase.
	Phase Phase
	// Ended is when the operation ended; nil for one that has not.
	Ended *metav1.Time
}

// SetOperations puts operations into their present phases and drops what exceeds the bounds. It returns whether that changed the record.
// index is that of the record.
func (r *Record) SetOperations(index map[[2]string]int, operations []Operation, now time.Time) (changed bool) {
	kept := r.kept(operations)
	gone := map[types.UID]int{}
	for i, s := range r.Subjects {
		if s.IsOperation() && s.Gone != nil {
			gone[s.UID] = i
		}
	}
	for _, op := range operations {
		uid := op.Object.GetUID()
		if !kept[uid] {
			continue
		}
		var s *Subject
		if i, known := gone[uid]; !known {
			s = r.Subject(index, op.Kind, op.Object)
		} else if s = &r.Subjects[i]; op.Ended != nil && s.deleted() {
			s.reopen()
		} else {
			continue // What has ended is not recorded again.
		}
		changed = s.SetPhase(op.Phase, now) || changed
		if op.Ended != nil {
			s.end(*op.Ended, op.Phase.Outcome)
			changed = true
		}
	}
	before := len(r.Subjects)
	r.Subjects = slices.DeleteFunc(r.Subjects, func(s Subject) bool { return s.IsOperation() && !kept[s.UID] })
	return changed || len(r.Subjects) != before
}

// end ends an operation with an outcome.
func (s *Subject) end(at metav1.Time, outcome Outcome) {
	last := &s.Phases[len(s.Phases)-1]
	if at.Before(&last.Start) {
		at = last.Start
	}
	s.EndPhase(at, outcome)
	last.Outcome, s.Gone = outcome, &at
}

// deleted returns whether the last phase ended since the subject was deleted.
func (s *Subject) deleted() bool {
	return s.Gone != nil && len(s.Phases) > 0 && s.Phases[len(s.Phases)-1].Outcome == OutcomeGone
}

// reopen takes back that the subject was deleted: an operation that has ended and was deleted at once may be missing before its end is
// seen.
func (s *Subject) reopen() {
	last := &s.Phases[len(s.Phases)-1]
	last.End, last.Seconds, last.Outcome, s.Gone = nil, 0, OutcomeRunning, nil
}

// kept returns which operations the record keeps, of those that exist and those that it has.
func (r *Record) kept(operations []Operation) map[types.UID]bool {
	type candidate struct {
		uid     types.UID
		ended   bool
		created metav1.Time
	}
	var all []candidate
	for _, op := range operations {
		all = append(all, candidate{op.Object.GetUID(), op.Ended != nil, op.Object.GetCreationTimestamp()})
	}
	for _, s := range r.Subjects {
		if s.IsOperation() && !slices.ContainsFunc(all, func(c candidate) bool { return c.uid == s.UID }) {
			all = append(all, candidate{s.UID, true, s.Created})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if a.ended != b.ended {
			if a.ended {
				return 1
			}
			return -1
		}
		return cmp.Or(b.created.Compare(a.created.Time), cmp.Compare(a.uid, b.uid))
	})
	kept := map[types.UID]bool{}
	for _, c := range all[:min(len(all), maxOperations)] {
		kept[c.uid] = true
	}
	return kept
}
