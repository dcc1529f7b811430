package rkebootstrap

import (
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/inprogress"
)

var ownedConditions = []string{
	clusterv1.PausedCondition, rkev1.IdentityReadyCondition, rkev1.DataSecretReadyCondition, rkev1.ReadyCondition,
	rkev1.ReconciledCondition, rkev1.PlanAppliedCondition,
}

// setStatus sets the status. Bootstrap data that were ready once count as ready, as the contract requires.
func setStatus(s *scope) {
	b := s.bootstrap
	b.Status.ObservedGeneration = b.Generation
	if s.data == nil {
		b.Status.DataSecretName = new(rkev1.BootstrapSecretName(b.Name))
		b.Status.Initialization.DataSecretCreated = new(true)
		b.Status.Ready = true
	}
	conditions.Set(b, s.identity.Condition(rkev1.IdentityReadyCondition, "IdentityReady"))
	conditions.Set(b, s.data.Condition(rkev1.DataSecretReadyCondition, "DataSecretReady"))
	first := s.identity
	if first == nil {
		first = s.data
	}
	conditions.Set(b, first.Condition(rkev1.ReadyCondition, "Ready"))
	// Earlier hubs wrote these here and on the Machine.
	conditions.Delete(b, rkev1.ReconciledCondition)
	conditions.Delete(b, rkev1.PlanAppliedCondition)
}

// waitsShownAfter is the age from which the status of an RKEBootstrap says that it waits for its Machine, which Cluster API creates after
// it, or how long it waits for the token of its ServiceAccount before it says so. Each is there within a second as a rule, and the status
// is written once instead of three times then. The more others wait, the longer it takes, and to write it each time would make it longer
// still.
func waitsShownAfter(others int) time.Duration {
	return inprogress.Delay(10*time.Second, others)
}

// briefWaits are the reasons of such waits.
var briefWaits = []string{reasonWaitingForMachine, reasonWaitingForToken}

// untilWaitsShown is how long an RKEBootstrap without a status, which waits only briefly, is left without one; zero for any other.
func (s *scope) untilWaitsShown(shownAfter time.Duration, now time.Time) time.Duration {
	since := s.bootstrap.CreationTimestamp.Time
	// On a busy hub the Machine comes later than that, and its token has not been asked for before.
	if s.tokenAsked.After(since) {
		since = s.tokenAsked
	}
	if conditions.Has(s.bootstrap, rkev1.ReadyCondition) || s.identity == nil && s.data == nil || since.After(now) {
		return 0
	}
	for _, waiting := range []*cause.Cause{s.identity, s.data} {
		if waiting != nil && !slices.Contains(briefWaits, waiting.Reason) {
			return 0
		}
	}
	return max(0, since.Add(shownAfter).Sub(now))
}
