package remote

import (
	"bytes"
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

const (
	// maxConflicts is how often one update is retried because another writer was faster.
	maxConflicts = 10
	// conflictDelay is the first delay after a conflict, which doubles up to maxConflictDelay.
	conflictDelay    = 20 * time.Millisecond
	maxConflictDelay = 1280 * time.Millisecond
)

// Update implements source.Source.
func (s *Source) Update(ctx context.Context, uid, checksum string, change func(*plans.Status)) (source.Snapshot, error) {
	s.mu.Lock()
	base := s.latest
	s.mu.Unlock()
	matches := func(secret *corev1.Secret) bool {
		return secret != nil && string(secret.UID) == uid && plans.DecodeDelivery(secret.Data).Checksum() == checksum
	}
	for conflicts := 0; ; conflicts++ {
		if !matches(base) {
			// Only the hub decides whether the plan has been superseded.
			var err error
			if base, err = s.get(ctx); err != nil && !isMissing(err) {
				return source.Snapshot{}, err
			}
			if err != nil || !matches(base) {
				return source.Snapshot{}, source.ErrSuperseded
			}
		}
		snapshot, err := s.put(ctx, base, change)
		if !apierrors.IsConflict(err) || conflicts == maxConflicts {
			return snapshot, classify(err)
		}
		base = nil
		// A cache between here and the hub may need a moment to see the other writer's version. When ctx is done, get says so.
		_ = retry.Sleep(ctx, retry.Delay(conflicts+1, conflictDelay, maxConflictDelay))
	}
}

// put writes a change of base, unless it changes nothing.
func (s *Source) put(ctx context.Context, base *corev1.Secret, change func(*plans.Status)) (source.Snapshot, error) {
	status := s.decodeStatus(base.Data)
	change(&status)
	next := base.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	if err := status.WriteTo(next.Data); err != nil {
		return source.Snapshot{}, err
	}
	if maps.EqualFunc(base.Data, next.Data, bytes.Equal) {
		return s.snapshot(base), nil
	}
	written, err := s.current().update(ctx, next)
	if err != nil {
		s.notice(err)
		return source.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteBesideLocked(written)
	return s.snapshot(written), nil
}
