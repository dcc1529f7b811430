package timelines

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func secondsAfter(seconds int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
}

func anOperation(name string, created int, phase string, outcome Outcome, since int, ended *int) Operation {
	op := Operation{
		Kind: "ETCDSnapshotSave", Phase: Phase{Name: phase, Outcome: outcome, Start: secondsAfter(since)},
		Object: &metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: secondsAfter(created)},
	}
	if ended != nil {
		at := secondsAfter(*ended)
		op.Ended = &at
	}
	return op
}

// describe writes the subjects with their phases.
func describe(r *Record) (out []string) {
	for _, s := range r.Subjects {
		line := s.Kind + "/" + s.Name
		for _, p := range s.Phases {
			end := ""
			if p.End != nil {
				end = fmt.Sprintf("+%d", p.Seconds)
			}
			line += fmt.Sprintf(" %s(%d%s %s)", p.Name, int(p.Start.Sub(start).Seconds()), end, p.Outcome)
		}
		if s.Gone != nil {
			line += " gone"
		}
		out = append(out, line)
	}
	return out
}

func TestSetOperations(t *testing.T) {
	r := &Record{}
	set := func(at int, ops ...Operation) bool { return r.SetOperations(r.Index(), ops, secondsAfter(at).Time) }
	six, nine := 6, 9
	set(1, anOperation("one", 0, "WaitingForMachine", OutcomeRunning, 0, nil))
	set(3, anOperation("one", 0, "Save", OutcomeRunning, 3, nil))
	if set(4, anOperation("one", 0, "Save", OutcomeRunning, 3, nil)) {
		t.Error("it changed without a change")
	}
	if !set(6, anOperation("one", 0, "MachineFailed", OutcomeFailed, 6, &six)) {
		t.Error("the end is no change")
	}
	if set(7, anOperation("one", 0, "MachineFailed", OutcomeFailed, 6, &six)) {
		t.Error("the end is recorded twice")
	}
	// One that was so short that only its end is seen, and one of the same name after it.
	set(9, anOperation("two", 8, "Succeeded", OutcomeDone, 9, &nine))
	again := anOperation("two", 10, "Save", OutcomeRunning, 10, nil)
	again.Object.SetUID("uid-again")
	set(10, again)
	want := []string{
		"ETCDSnapshotSave/one WaitingForMachine(0+3 done) Save(3+3 failed) MachineFailed(6+0 failed) gone",
		"ETCDSnapshotSave/two Succeeded(8+1 done) gone",
		"ETCDSnapshotSave/two Save(10 running)",
	}
	if diff := cmp.Diff(want, describe(r)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestOperationsAreBounded: operations that are kept for ever do not fill the record, and do not change places in it.
func TestOperationsAreBounded(t *testing.T) {
	r := &Record{Subjects: []Subject{{Kind: KindCluster, Name: "c"}}}
	var all []Operation
	for i := range 3 * maxOperations {
		ended := i + 1
		all = append(all, anOperation(fmt.Sprintf("op-%02d", i), i, "Succeeded", OutcomeDone, i, &ended))
	}
	all = append(all, anOperation("waits", -100, "Pending", OutcomeRunning, -100, nil))
	now := secondsAfter(1000).Time
	r.SetOperations(r.Index(), all, now)
	names := strings.Join(describe(r), "\n")
	if len(r.Subjects) != 1+maxOperations || !strings.Contains(names, "/waits") || !strings.Contains(names, "/op-59 ") ||
		strings.Contains(names, "/op-40 ") {
		t.Errorf("%d subjects:\n%s", len(r.Subjects), names)
	}
	if r.SetOperations(r.Index(), all, now) {
		t.Error("the record changes with each reconcile")
	}
	// Deleted operations stay until newer ones come.
	if r.SetOperations(r.Index(), nil, now) || len(r.Subjects) != 1+maxOperations {
		t.Errorf("%d subjects are left", len(r.Subjects))
	}
}

func TestGoneMachinesAreKeptBesideOperations(t *testing.T) {
	r, at := &Record{}, secondsAfter(0)
	for i := range maxGone {
		gone := secondsAfter(i)
		r.Subjects = append(r.Subjects, Subject{Kind: KindMachine, Name: fmt.Sprint(i), Gone: &gone})
	}
	for i := range maxOperations {
		r.Subjects = append(r.Subjects, Subject{Kind: "ETCDSnapshotSave", Name: fmt.Sprint(i), Gone: &at})
	}
	if r.dropGone(); len(r.Subjects) != maxGone+maxOperations {
		t.Errorf("%d subjects are left", len(r.Subjects))
	}
}
