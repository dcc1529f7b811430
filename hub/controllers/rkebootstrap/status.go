package rkebootstrap

import (
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var ownedConditions = []string{rkev1.IdentityReadyCondition, rkev1.DataSecretReadyCondition, rkev1.ReadyCondition}

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
}
