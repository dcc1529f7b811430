package report

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// slowSource takes a second for each write, and fails the first one.
type slowSource struct {
	source.Source
	failed  bool
	written []string
}

func (s *slowSource) Update(_ context.Context, _, checksum string, _ func(*plans.Status)) (source.Snapshot, error) {
	time.Sleep(time.Second)
	if !s.failed {
		s.failed = true
		return source.Snapshot{}, errors.New("connection reset")
	}
	s.written = append(s.written, checksum)
	return source.Snapshot{}, nil
}

func (*slowSource) ReportSent()        {}
func (*slowSource) ReportFailed(error) {}

// TestDroppedOutcome drops an outcome for a report about another plan. When it is handed over again, it is written.
func TestDroppedOutcome(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"while it is written": 500 * time.Millisecond, "while it waits to be written again": 1010 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowSource{}
				r := New(s, slog.New(slog.DiscardHandler), s)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go r.Run(ctx)
				outcome := Outcome{Record: journal.Record{AttemptID: journal.AttemptID{Checksum: "newer"}}}
				r.Outcome(outcome, nil, false)
				time.Sleep(after)
				r.Probes(source.PlanID{Checksum: "older"}, nil)
				time.Sleep(time.Minute)
				r.Outcome(outcome, nil, false)
				time.Sleep(time.Minute)
				synctest.Wait()
				if diff := cmp.Diff([]string{"older", "newer"}, s.written); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
