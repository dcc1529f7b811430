package engine

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"testing"

	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// secret is a Source in memory, with the hub's side for tests.
type secret struct {
	t  *testing.T
	mu sync.Mutex

	uid       string
	data      plans.SecretData
	interrupt plans.Interrupt
	updates   chan source.Snapshot
	gets      int
	writes    int
	down      error
	gone      func() bool // the machine that asks has stopped
	onWrite   func(after bool)
	limit     int      // of an output, 0 for none
	log       []string // plan-state and counts after each write
}

func newSecret(t *testing.T) *secret {
	return &secret{t: t, uid: "uid-1", data: plans.SecretData{}, updates: make(chan source.Snapshot, 1)}
}

// hub changes the data as the hub does.
func (s *secret) hub(change func(plans.SecretData)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.data)
	s.publish()
}

func (s *secret) deliver(plan plans.Plan, maxFailures int) string {
	raw, err := plan.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.hub(func(data plans.SecretData) { plans.Deliver(data, raw, maxFailures, 0) })
	return plans.Checksum(raw)
}

// deliverOld delivers without plan-state.
func (s *secret) deliverOld(plan plans.Plan, maxFailures int) string {
	checksum := ""
	raw, err := plan.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.hub(func(data plans.SecretData) {
		plans.Deliver(data, raw, maxFailures, 0)
		delete(data, plans.KeyPlanState)
	})
	checksum = plans.Checksum(raw)
	return checksum
}

func (s *secret) setDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

func (s *secret) publish() {
	select {
	case <-s.updates:
	default:
	}
	s.updates <- s.snapshot()
}

func (s *secret) snapshot() source.Snapshot {
	status, err := plans.DecodeStatus(s.data)
	if err != nil {
		s.t.Error(err)
	}
	return source.Snapshot{UID: s.uid, Delivery: plans.DecodeDelivery(s.data), Status: status, Interrupt: s.interrupt}
}

func (s *secret) status() plans.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot().Status
}

func (s *secret) copy() plans.SecretData {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.data)
}

func (s *secret) counts() (gets, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets, s.writes
}

func (s *secret) history() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}

func (s *secret) Updates() <-chan source.Snapshot { return s.updates }

func (s *secret) Get(ctx context.Context) (source.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	return s.snapshot(), errors.Join(s.down, ctx.Err(), s.stopped())
}

func (s *secret) stopped() error {
	if s.gone != nil && s.gone() {
		return errors.New("the machine has stopped")
	}
	return nil
}

func (s *secret) Update(ctx context.Context, uid, checksum string, change func(*plans.Status)) (source.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.down, ctx.Err(), s.stopped()); err != nil {
		return source.Snapshot{}, err
	}
	now := s.snapshot()
	if now.PlanID() != (source.PlanID{UID: uid, Checksum: checksum}) {
		return source.Snapshot{}, source.ErrSuperseded
	}
	change(&now.Status)
	for _, output := range now.Status.AppliedOutput {
		if s.limit > 0 && len(output) > s.limit {
			return source.Snapshot{}, source.ErrTooLarge
		}
	}
	data := maps.Clone(s.data)
	if err := now.Status.WriteTo(data); err != nil {
		return source.Snapshot{}, err
	}
	if !maps.EqualFunc(data, s.data, bytes.Equal) {
		if s.onWrite != nil {
			if s.onWrite(false); s.stopped() != nil {
				return source.Snapshot{}, s.stopped()
			}
			defer s.onWrite(true)
		}
		s.writes++
		s.data = data
		after := s.snapshot().Status
		s.log = append(s.log, string(after.State)+"/"+strconv.Itoa(after.FailureCount)+"/"+strconv.Itoa(after.SuccessCount))
		s.publish()
	}
	return s.snapshot(), nil
}
