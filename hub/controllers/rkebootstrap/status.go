package rkebootstrap

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
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
	conditions.Set(b, condition(rkev1.IdentityReadyCondition, "IdentityReady", s.identity))
	conditions.Set(b, condition(rkev1.DataSecretReadyCondition, "DataSecretReady", s.data))
	first := s.identity
	if first == nil {
		first = s.data
	}
	conditions.Set(b, condition(rkev1.ReadyCondition, "Ready", first))
}

func condition(conditionType, reason string, p *cause.Cause) metav1.Condition {
	if p == nil {
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason}
	}
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: p.Reason, Message: p.Message}
}
