package rkecontrolplane

import (
	"reflect"
	"time"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// progressInterval is the least time between two writes of conditions that say no more than how far the machines have come: while many
// machines are made or changed, names and numbers in messages change with each of them, and three objects show them.
const progressInterval = time.Second

// holdProgress leaves the conditions as they were in the status before the reconcile if they say nothing new but progress, and did so a
// moment ago. The next reconcile then shows it.
func (s *scope) holdProgress(before *rkev1.RKEControlPlaneStatus, now time.Time) {
	if s.plans == nil || !onlyProgress(*before, s.controlPlane.Status) {
		return
	}
	if wait := s.plans.progressShown.Add(progressInterval).Sub(now); wait > 0 && wait <= progressInterval {
		s.controlPlane.Status.Conditions = before.Conditions
		s.requeue(wait)
		return
	}
	s.plans.progressShown = now
}

// onlyProgress reports whether two statuses differ, and in nothing but reasons and messages of conditions.
func onlyProgress(before, after rkev1.RKEControlPlaneStatus) bool {
	if len(before.Conditions) != len(after.Conditions) {
		return false
	}
	differ := false
	for i, a := range after.Conditions {
		b := before.Conditions[i]
		differ = differ || a.Reason != b.Reason || a.Message != b.Message
		if a.Type != b.Type || a.Status != b.Status || a.ObservedGeneration != b.ObservedGeneration {
			return false
		}
	}
	before.Conditions, after.Conditions = nil, nil
	return differ && reflect.DeepEqual(before, after)
}
