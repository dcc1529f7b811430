package timeline

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// eventRule says which Events a condition of a kind causes. A transition is a change of the condition's status or reason. The same reason
// causes an Event of one condition and none of another that repeats it; what a reason alone decides, such as a warning, is in
// hub/plan/reasons.
type eventRule struct {
	// whenTrue and otherwise are the reasons of the Events for a condition that is True, and for one that is not. Empty takes the reason of
	// the condition; suppressed creates no Event.
	whenTrue, otherwise string
	// prefix is put before the reason of the condition, for reasons that say little without the type of the condition.
	prefix string
	// warning makes the Event of a condition that is False a warning: a user has to act, unless the reason is benign.
	warning bool
	// skipInitial creates no Event for a condition that is not True when it is seen for the first time.
	skipInitial bool
	// propagated is when the Cluster gets the Event too.
	propagated propagation
}

const suppressed = "-"

// propagation is for which states of a condition the Cluster gets the Event too. What each of a thousand machines goes through is no news
// about the Cluster; what one of them needs is.
type propagation int

const (
	never propagation = iota
	always
	// unlessTrue is for conditions that are True when nothing is wrong.
	unlessTrue
	// ifFalse is for conditions that are Unknown while the hub is working on it.
	ifFalse
)

func (p propagation) of(status metav1.ConditionStatus) bool {
	switch p {
	case always:
		return true
	case unlessTrue:
		return status != metav1.ConditionTrue
	case ifFalse:
		return status == metav1.ConditionFalse
	}
	return false
}

var (
	// noEvents is for conditions that repeat what others say.
	noEvents = eventRule{whenTrue: suppressed, otherwise: suppressed}
	// defaultRule is for conditions that are not listed, such as those of other controllers.
	defaultRule  = eventRule{warning: true, skipInitial: true, propagated: always}
	pausedRule   = progressRule("Paused", "Resumed")
	deletingRule = eventRule{otherwise: suppressed, propagated: always}
)

// progressRule is for conditions that are True while something is in progress.
func progressRule(started, finished string) eventRule {
	return eventRule{whenTrue: started, otherwise: finished, skipInitial: true, propagated: always}
}

// eventRules are the rules by kind and type of the condition.
var eventRules = map[reflect.Type]map[string]eventRule{
	reflect.TypeFor[*provisioningv1.Cluster](): {
		provisioningv1.CreatedCondition:              {whenTrue: "Created", warning: true},
		provisioningv1.RKEClusterCondition:           {whenTrue: "Accepted", warning: true},
		provisioningv1.ProvisionedCondition:          {whenTrue: "Provisioned", otherwise: suppressed},
		provisioningv1.UpdatedCondition:              {whenTrue: "UpToDate", otherwise: suppressed},
		provisioningv1.ReconcilingCondition:          noEvents,
		provisioningv1.ReadyCondition:                {whenTrue: "Ready", warning: true},
		provisioningv1.RemovedCondition:              {whenTrue: "Removed"},
		clusterv1.PausedCondition:                    pausedRule,
		provisioningv1.SystemAgentsUpgradedCondition: {prefix: "SystemAgents", warning: true, skipInitial: true},
	},
	reflect.TypeFor[*clusterv1.Cluster](): {
		clusterv1.InfrastructureReadyCondition:                 {whenTrue: "InfrastructureReady", otherwise: suppressed, propagated: always},
		clusterv1.ClusterControlPlaneInitializedCondition:      {whenTrue: "ControlPlaneInitialized", otherwise: suppressed, propagated: always},
		clusterv1.ClusterControlPlaneAvailableCondition:        noEvents,
		clusterv1.ClusterWorkersAvailableCondition:             noEvents,
		clusterv1.AvailableCondition:                           noEvents,
		clusterv1.ClusterControlPlaneMachinesReadyCondition:    noEvents,
		clusterv1.ClusterWorkerMachinesReadyCondition:          noEvents,
		clusterv1.ClusterControlPlaneMachinesUpToDateCondition: noEvents,
		clusterv1.ClusterWorkerMachinesUpToDateCondition:       noEvents,
		clusterv1.ClusterTopologyReconciledCondition:           noEvents,
		clusterv1.ClusterRemoteConnectionProbeCondition: {whenTrue: "ClusterReached", otherwise: "ClusterNotReached", skipInitial: true,
			warning: true, propagated: always},
		clusterv1.RollingOutCondition:  noEvents,
		clusterv1.ScalingUpCondition:   noEvents,
		clusterv1.ScalingDownCondition: noEvents,
		clusterv1.RemediatingCondition: noEvents,
		clusterv1.DeletingCondition:    deletingRule,
		clusterv1.PausedCondition:      pausedRule,
	},
	reflect.TypeFor[*rkev1.RKEControlPlane](): {
		rkev1.ReadyCondition:             {whenTrue: "Ready", warning: true},
		rkev1.ProvisionedCondition:       {whenTrue: "Provisioned", otherwise: suppressed},
		rkev1.BootstrappedCondition:      {whenTrue: "Bootstrapped", otherwise: suppressed, propagated: always},
		rkev1.StableCondition:            noEvents,
		rkev1.UpdatedCondition:           noEvents,
		rkev1.ReconciledCondition:        {whenTrue: suppressed, warning: true},
		"ConfigurationAccepted":          {whenTrue: "ConfigurationAccepted", warning: true, propagated: always},
		rkev1.CertificatesValidCondition: {whenTrue: suppressed, warning: true, propagated: always},
		"KubeconfigReady":                {whenTrue: "KubeconfigReady", otherwise: suppressed, propagated: always},
		clusterv1.AvailableCondition: {whenTrue: "Available", otherwise: "NotAvailable", skipInitial: true, warning: true,
			propagated: always},
		clusterv1.RollingOutCondition:               progressRule("RollingOut", "RolledOut"),
		clusterv1.ScalingUpCondition:                progressRule("ScalingUp", "ScaledUp"),
		clusterv1.ScalingDownCondition:              progressRule("ScalingDown", "ScaledDown"),
		clusterv1.RemediatingCondition:              progressRule("Remediating", "Remediated"),
		clusterv1.MachinesReadyCondition:            noEvents,
		clusterv1.MachinesUpToDateCondition:         noEvents,
		clusterv1.DeletingCondition:                 deletingRule,
		clusterv1.PausedCondition:                   pausedRule,
		rkev1.SystemUpgradeControllerReadyCondition: noEvents,
	},
	reflect.TypeFor[*clusterv1.MachineDeployment](): {
		clusterv1.AvailableCondition:        {whenTrue: "Available", otherwise: "NotAvailable", skipInitial: true},
		clusterv1.RollingOutCondition:       progressRule("RollingOut", "RolledOut"),
		clusterv1.ScalingUpCondition:        progressRule("ScalingUp", "ScaledUp"),
		clusterv1.ScalingDownCondition:      progressRule("ScalingDown", "ScaledDown"),
		clusterv1.RemediatingCondition:      progressRule("Remediating", "Remediated"),
		clusterv1.MachinesReadyCondition:    noEvents,
		clusterv1.MachinesUpToDateCondition: noEvents,
		clusterv1.DeletingCondition:         deletingRule,
		clusterv1.PausedCondition:           pausedRule,
	},
	reflect.TypeFor[*clusterv1.Machine](): {
		// What each machine gets is in its conditions and its timeline; UpToDate follows.
		clusterv1.InfrastructureReadyCondition:  {whenTrue: suppressed, otherwise: "WaitingForInfrastructure", skipInitial: true},
		clusterv1.BootstrapConfigReadyCondition: {whenTrue: suppressed, otherwise: "WaitingForBootstrapData", skipInitial: true},
		clusterv1.MachineNodeReadyCondition: {whenTrue: "NodeReady", otherwise: "NodeNotReady", skipInitial: true, warning: true,
			propagated: unlessTrue},
		clusterv1.MachineNodeHealthyCondition:          noEvents,
		rkev1.ReconciledCondition:                      {whenTrue: "UpToDate", warning: true, propagated: ifFalse},
		rkev1.PlanAppliedCondition:                     {whenTrue: suppressed, prefix: "Plan", warning: true}, // UpToDate follows
		rkev1.SystemAgentUpgradedCondition:             {prefix: "SystemAgent", warning: true, skipInitial: true, propagated: ifFalse},
		rkev1.EtcdMemberRemovedCondition:               {prefix: "EtcdMember", warning: true, propagated: always},
		clusterv1.MachineHealthCheckSucceededCondition: {whenTrue: suppressed, warning: true, propagated: always},
		clusterv1.MachineOwnerRemediatedCondition:      {whenTrue: "Remediated", otherwise: "Remediating", propagated: always},
		clusterv1.DeletingCondition:                    deletingRule,
		clusterv1.PausedCondition:                      pausedRule,
		clusterv1.ReadyCondition:                       noEvents,
		clusterv1.AvailableCondition:                   noEvents,
		clusterv1.MachineUpToDateCondition:             noEvents,
		clusterv1.MachineUpdatingCondition:             noEvents,
	},
	reflect.TypeFor[*rkev1.RKEBootstrap](): {
		rkev1.IdentityReadyCondition: noEvents,
		// The Machine's condition says when the data are ready.
		rkev1.DataSecretReadyCondition:     {whenTrue: suppressed, skipInitial: true},
		rkev1.NodeSyncedCondition:          {whenTrue: suppressed, warning: true, propagated: ifFalse},
		rkev1.ReconciledCondition:          noEvents, // of earlier hubs, as is the next
		rkev1.PlanAppliedCondition:         noEvents,
		rkev1.SystemAgentUpgradedCondition: noEvents,
		rkev1.ReadyCondition:               noEvents,
		clusterv1.PausedCondition:          pausedRule,
	},
}

// operationRules are those of all kinds of operations.
var operationRules = map[string]eventRule{
	operationv1.SucceededCondition: {prefix: "Operation", warning: true, propagated: always},
	operationv1.PausedCondition:    progressRule("OperationPaused", "OperationResumed"),
}

// ruleFor returns the rule of a condition of an object.
func ruleFor(object conditioned, conditionType string) eventRule {
	if _, ok := object.(operationv1.Operation); ok {
		if rule, ok := operationRules[conditionType]; ok {
			return rule
		}
	}
	if rule, ok := eventRules[reflect.TypeOf(object)][conditionType]; ok {
		return rule
	}
	return defaultRule
}

// reason is that of the Event; empty if there is none.
func (r eventRule) reason(c metav1.Condition) string {
	reason := r.otherwise
	if c.Status == metav1.ConditionTrue {
		reason = r.whenTrue
	}
	switch reason {
	case suppressed:
		return ""
	case "":
		return r.prefix + c.Reason
	}
	return reason
}
