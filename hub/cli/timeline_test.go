package cli

import (
	"context"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-dev/drover/hub/util/timelines"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
}

func aRecord() *timelines.Record {
	end := at(10)
	applying := timelines.Phase{Name: "ApplyingPlan", Start: at(5), End: &end, Seconds: 5, Outcome: timelines.OutcomeFailed,
		Message: "two\nlines"}
	ready := timelines.Phase{Name: "Ready", Start: at(10), Outcome: timelines.OutcomeReady}
	machine := func(name, pool string, phases ...timelines.Phase) timelines.Subject {
		return timelines.Subject{Kind: timelines.KindMachine, Name: name, Pool: pool, Roles: []string{"worker"}, Phases: phases}
	}
	gone := at(3)
	old := machine("old", "a", timelines.Phase{Name: "Ready", Start: at(0), End: &gone, Seconds: 3, Outcome: timelines.OutcomeGone})
	old.Gone = &gone
	return &timelines.Record{Subjects: []timelines.Subject{
		{Kind: timelines.KindCluster, Name: "demo",
			Phases: []timelines.Phase{{Name: "WaitingForProbes", Start: at(0), Outcome: timelines.OutcomeRunning, Message: "m"}}},
		machine("b-1", "b", ready), machine("a-2", "a", applying, ready), machine("a-1", "a", ready), old,
	}}
}

func table(t *testing.T, write func(*strings.Builder) error) string {
	t.Helper()
	var out strings.Builder
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func TestWriteTimeline(t *testing.T) {
	want := `START                TOOK  WHO      PHASE             OUTCOME  MESSAGE
2026-05-01 12:00:00  1m0s  cluster  WaitingForProbes  running  m
2026-05-01 12:00:00  3s    old      Ready             gone
2026-05-01 12:00:05  5s    a-2      ApplyingPlan      failed   two lines
2026-05-01 12:00:10  50s   a-1      Ready             ready
2026-05-01 12:00:10  50s   a-2      Ready             ready
2026-05-01 12:00:10  50s   b-1      Ready             ready
`
	got := table(t, func(out *strings.Builder) error { return writeTimeline(out, aRecord(), noon.Add(time.Minute)) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := took(timelines.Phase{Start: at(10)}, noon); got != "0s" {
		t.Errorf("with a clock that is behind the hub's, a phase has taken %s", got)
	}
	o := &timelineOptions{machine: "a-2"}
	if got := events(o.only(aRecord())); len(got) != 2 || got[0].Name != "ApplyingPlan" {
		t.Errorf("of one machine it shows %+v", got)
	}
}

func TestWatchShowsEachPhaseOnce(t *testing.T) {
	o, shown := &timelineOptions{output: output{form: "table"}}, map[event]bool{}
	var out strings.Builder
	record := aRecord()
	for range 2 {
		if err := o.showRecord(record, shown, &out); err != nil {
			t.Fatal(err)
		}
	}
	record.Subjects[0].Phases[0].Message = "another"
	record.Subjects[0].Phases = append(record.Subjects[0].Phases, timelines.Phase{Name: "Ready", Start: at(20),
		Outcome: timelines.OutcomeReady})
	if err := o.showRecord(record, shown, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 7 || lines[0] != "2026-05-01 12:00:00  cluster: WaitingForProbes: m" ||
		lines[6] != "2026-05-01 12:00:20  cluster: Ready" {
		t.Errorf("got\n%s", out.String())
	}
}

// TestWatchOutlivesARestart: while the hub is restarted, "hub timeline --watch" waits, and says so once.
func TestWatchOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watches, last := 0, error(syscall.ECONNREFUSED)
		c := interceptor.NewClient(fakeAPI(t), interceptor.Funcs{
			Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				if watches++; watches == 5 {
					cancel()
				}
				return nil, last
			},
		})
		run := func() (string, error) {
			var errs strings.Builder
			o, key := &timelineOptions{output: output{form: "table"}}, client.ObjectKey{Namespace: "ns", Name: "demo"}
			err := o.watchChanges(ctx, c, key, timelines.NewCollector(key), map[event]bool{}, io.Discard, &errs)
			return errs.String(), err
		}
		if errs, err := run(); err != nil || watches != 5 || strings.Count(errs, "Waiting for the hub: connection refused") != 1 {
			t.Errorf("%d watches, %q, %v", watches, errs, err)
		}
		ctx = t.Context()
		last = apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil)
		if errs, err := run(); !apierrors.IsForbidden(err) || errs != "" {
			t.Errorf("without the right: %q, %v", errs, err)
		}
	})
}

// TestOperationsInTimeline: an operation is named with its kind, and stands before the machines while it goes on.
func TestOperationsInTimeline(t *testing.T) {
	record, ended := aRecord(), at(20)
	record.Subjects = append(record.Subjects,
		timelines.Subject{Kind: "TokenRotation", Name: "op",
			Phases: []timelines.Phase{{Name: "Rotate", Start: at(30), Outcome: timelines.OutcomeRunning}}},
		timelines.Subject{Kind: "ETCDSnapshotSave", Name: "op", Gone: &ended, Phases: []timelines.Phase{
			{Name: "Succeeded", Start: at(20), End: &ended, Outcome: timelines.OutcomeDone}}})
	lines := statusOf(record)
	got := table(t, func(out *strings.Builder) error { return writeStatus(out, "ns", lines, noon.Add(time.Minute)) })
	if rows := strings.Split(got, "\n"); !strings.HasPrefix(rows[2], "├─ TokenRotation/op ") || strings.Contains(got, "ETCDSnapshotSave") {
		t.Errorf("got\n%s", got)
	}
	got = table(t, func(out *strings.Builder) error { return writeTimeline(out, record, noon.Add(time.Minute)) })
	if !strings.Contains(got, "ETCDSnapshotSave/op  Succeeded") || !strings.Contains(got, "TokenRotation/op     Rotate") {
		t.Errorf("got\n%s", got)
	}
}

func TestWriteStatus(t *testing.T) {
	want := `NAME       ROLES   PHASE             FOR   MESSAGE
ns/demo            WaitingForProbes  1m0s  m
├─ pool a
│  ├─ a-1  worker  Ready             50s
│  └─ a-2  worker  Ready             50s
└─ pool b
   └─ b-1  worker  Ready             50s
`
	got := table(t, func(out *strings.Builder) error {
		return writeStatus(out, "ns", statusOf(aRecord()), noon.Add(time.Minute))
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
