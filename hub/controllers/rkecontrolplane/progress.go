package rkecontrolplane

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/plansecrets"
)

// holdProgress leaves the conditions as they were in the status before the reconcile if they say nothing new but progress, and did so a
// moment ago. The next reconcile then shows it.
func (s *scope) holdProgress(before *rkev1.RKEControlPlaneStatus, now time.Time) {
	if s.plans == nil || !onlyProgress(*before, s.controlPlane.Status) {
		return
	}
	interval := s.backlog.progressInterval()
	if wait := s.plans.progressShown.Add(interval).Sub(now); wait > 0 && wait <= interval {
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

// quickReasons are those of a machine from the delivery of a plan until its agent has applied it and all probes have passed.
var quickReasons = []string{
	rollout.ReasonDelivering, rollout.ReasonWaitingForAgent, rollout.ReasonApplyingPlan, rollout.ReasonWaitingForProbes,
}

// inProgress reports whether a plan is delivered, or the agent has not applied it yet, or reported probes that have not passed.
func (m *machine) inProgress() bool {
	return m.secret != nil && !m.decision.Done && slices.Contains(quickReasons, m.decision.Reason)
}

// untilProgressShown is how long the condition Reconciled does not yet say that a plan is delivered or applied, which it does some time
// after the delivery; zero for anything else.
func (m *machine) untilProgressShown(shownAfter time.Duration, now time.Time) time.Duration {
	switch {
	case !m.inProgress():
		return 0
	case m.decision.Deliver:
		return shownAfter
	}
	return plansecrets.UntilProgressShown(m.secret, shownAfter, now)
}

// isNew reports whether nothing has been said about a machine yet.
func (m *machine) isNew() bool { return !conditions.Has(m.machine, rkev1.ReconciledCondition) }

// untilFirstWaitShown is how long a new machine that waits is left without the condition Reconciled; zero for any other.
func (m *machine) untilFirstWaitShown(shownAfter time.Duration, now time.Time) time.Duration {
	created := m.machine.CreationTimestamp.Time
	if !m.isNew() || m.decision.Done || reasons.Get(m.decision.Reason).Status != metav1.ConditionUnknown || created.After(now) {
		return 0
	}
	return max(0, created.Add(shownAfter).Sub(now))
}
