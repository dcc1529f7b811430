package timelines

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var (
	noon       = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	clusterKey = client.ObjectKey{Namespace: "ns", Name: "c"}
)

// newMachine is a Machine that was created at noon.
func newMachine(name string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-m",
		CreationTimestamp: metav1.NewTime(noon)}}
}

// lines writes the phases of a subject as a test can read them.
func lines(s Subject) []string {
	var out []string
	for _, p := range s.Phases {
		end := "…"
		if p.End != nil {
			end = fmt.Sprintf("+%ds", p.Seconds)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s%s %s %s", p.Name, p.Start.UTC().Format("15:04:05"), end, p.Outcome, p.Message)))
	}
	return out
}

func TestPhasesOfSubject(t *testing.T) {
	s := Subject{Created: metav1.NewTime(noon)}
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	for _, step := range []struct {
		at      int
		p       Phase
		changed bool
	}{
		{3, Phase{Name: "WaitingForAgent", Message: "a", Outcome: OutcomeRunning}, true},
		{4, Phase{Name: "WaitingForAgent", Message: "a", Outcome: OutcomeRunning}, false},
		{5, Phase{Name: "WaitingForAgent", Message: "b", Outcome: OutcomeRunning}, true},
		{10, Phase{Name: "ApplyingPlan", Outcome: OutcomeRunning}, true},
		{20, Phase{Name: "PlanFailed", Outcome: OutcomeFailed, Start: metav1.NewTime(at(19))}, true},
		{30, Phase{Name: "ApplyingPlan", Outcome: OutcomeRunning}, true},
		{50, Phase{Name: "Ready", Outcome: OutcomeReady, Start: metav1.NewTime(at(45))}, true},
	} {
		if changed := s.SetPhase(step.p, at(step.at)); changed != step.changed {
			t.Errorf("at %d: changed is %v", step.at, changed)
		}
	}
	want := []string{
		"WaitingForAgent 12:00:00+10s done b", "ApplyingPlan 12:00:10+9s failed", "PlanFailed 12:00:19+11s failed",
		"ApplyingPlan 12:00:30+15s done", "Ready 12:00:45… ready",
	}
	if diff := cmp.Diff(want, lines(s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.EndPhase(metav1.NewTime(at(60)), OutcomeGone)
	if got := lines(s)[4]; got != "Ready 12:00:45+15s gone" {
		t.Errorf("after it is gone: %s", got)
	}
}

// collect reads parts as they are stored.
func collect(t *testing.T, parts []Part) *Record {
	t.Helper()
	collector := NewCollector(clusterKey)
	for _, p := range parts {
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		configMap := &corev1.ConfigMap{Data: map[string]string{DataKey: string(raw)}}
		configMap.Name = rkev1.TimelinePartName(clusterKey.Name, p.Part)
		if changed, err := collector.Add(configMap); err != nil || !changed {
			t.Fatalf("part %d: %v, %v", p.Part, changed, err)
		}
		if changed, err := collector.Add(configMap); err != nil || changed {
			t.Errorf("part %d is new a second time (%v)", p.Part, err)
		}
	}
	return collector.Record()
}

// TestRecordIsBounded: the timeline of a large cluster is bounded, and never lacks the present phase of a machine.
func TestRecordIsBounded(t *testing.T) {
	record := &Record{}
	for i := range 1000 {
		machine := newMachine(fmt.Sprintf("machine-%d", i))
		machine.UID = types.UID(fmt.Sprintf("87b1c9b2-5d5c-4d5c-9d5c-%012d", i))
		s := record.Subject(record.Index(), KindMachine, machine)
		for j := range 60 {
			s.SetPhase(Phase{Name: fmt.Sprintf("Phase%d", j), Message: strings.Repeat("x", 80), Outcome: OutcomeRunning},
				noon.Add(time.Duration(j)*time.Minute))
		}
		if len(s.Phases) != maxPhases {
			t.Fatalf("machine %d has %d phases", i, len(s.Phases))
		}
	}
	for i := range 200 {
		gone := metav1.NewTime(noon.Add(time.Duration(i) * time.Minute))
		record.Subject(record.Index(), KindMachine, newMachine(fmt.Sprintf("old-%d", i))).Gone = &gone
	}
	parts, _, size, err := record.Encode()
	if err != nil || size > maxRecordBytes {
		t.Fatalf("%d bytes, error %v", size, err)
	}
	back := collect(t, parts)
	if got := len(back.Subjects); got != 1000+maxGone {
		t.Errorf("%d subjects are left, want %d", got, 1000+maxGone)
	}
	for _, s := range back.Subjects {
		if s.Gone != nil {
			continue
		}
		if last := s.Phases[len(s.Phases)-1]; last.Name != "Phase59" || last.End != nil || len(s.Phases)+s.Dropped != 60 {
			t.Fatalf("%s ends in %+v with %d phases and %d dropped", s.Name, last, len(s.Phases), s.Dropped)
		}
	}
}
