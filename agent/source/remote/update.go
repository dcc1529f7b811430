package remote

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/plans"
)

const (
	// maxConflicts is how often one update starts over because another writer was faster.
	maxConflicts       = 10
	firstConflictPause = 20 * time.Millisecond
)

// Update implements engine.Source.
func (s *Source) Update(ctx context.Context, uid, checksum string, change func(*plans.Status)) (engine.Snapshot, error) {
	s.mu.Lock()
	base := s.latest
	s.mu.Unlock()
	is := func(secret *corev1.Secret) bool {
		return secret != nil && string(secret.UID) == uid && plans.DecodeDelivery(secret.Data).Checksum() == checksum
	}
	for conflicts := 0; ; conflicts++ {
		if !is(base) {
			// Only what the hub holds now may tell that the plan is another one.
			var err error
			if base, err = s.get(ctx); apierrors.IsNotFound(err) {
				return engine.Snapshot{}, engine.ErrSuperseded
			} else if err != nil {
				return engine.Snapshot{}, err
			}
			if !is(base) {
				return engine.Snapshot{}, engine.ErrSuperseded
			}
		}
		snapshot, err := s.put(ctx, base, change)
		if !apierrors.IsConflict(err) || conflicts == maxConflicts {
			return snapshot, classify(err)
		}
		base = nil
		// A cache between here and the hub may need a moment to see the other writer's version.
		select {
		case <-ctx.Done():
		case <-time.After(jitter(firstConflictPause << min(conflicts, 6))):
		}
	}
}

// put writes the change of one base.
func (s *Source) put(ctx context.Context, base *corev1.Secret, change func(*plans.Status)) (engine.Snapshot, error) {
	status := s.status(base.Data)
	change(&status)
	next := base.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	if err := status.WriteTo(next.Data); err != nil {
		return engine.Snapshot{}, err
	}
	if equal(base.Data, next.Data) {
		return s.snapshot(base), nil
	}
	written, err := s.current().update(ctx, next)
	if err != nil {
		s.notice(err)
		return engine.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = written
	return s.snapshot(written), nil
}

// classify gives errors the class that the engine acts on.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return engine.ErrSuperseded
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.IsInvalid(err):
		return fmt.Errorf("updating the plan Secret: %w: %w", engine.ErrTooLarge, err)
	}
	return fmt.Errorf("updating the plan Secret: %w", explain(err))
}
