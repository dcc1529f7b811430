package timeline

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// telling says which Events come of a condition.
type telling struct {
	// met and unmet are the reasons of the Events when the condition is true and when it is not. Empty takes the condition's own reason,
	// untold tells nothing.
	met, unmet string
	// prefix comes before the condition's own reason, where that says little by itself.
	prefix string
	// trouble makes a warning of a condition that is false: somebody has to act.
	trouble bool
	// rests does not tell that a condition is not met when it is seen for the first time.
	rests bool
	// up tells it on the Cluster too.
	up bool
}

const untold = "-"

// silent are conditions that say what others have said.
var silent = telling{met: untold, unmet: untold}

// other is for conditions that are not listed: what another controller has to say is told as it says it.
var other = telling{trouble: true, rests: true, up: true}

func busy(met, unmet string) telling { return telling{met: met, unmet: unmet, rests: true, up: true} }

var (
	isPaused   = busy("Paused", "Resumed")
	isDeleting = telling{unmet: untold, up: true}
)

// tellings are the conditions of a kind, by type.
var tellings = map[reflect.Type]map[string]telling{
	reflect.TypeFor[*provisioningv1.Cluster](): {
		provisioningv1.CreatedCondition:     {met: "Created", trouble: true},
		provisioningv1.RKEClusterCondition:  {met: "Accepted", trouble: true},
		provisioningv1.ProvisionedCondition: {met: "Provisioned", unmet: untold},
		provisioningv1.UpdatedCondition:     {met: "UpToDate", unmet: untold},
		provisioningv1.ReadyCondition:       {met: "Ready", trouble: true},
		provisioningv1.RemovedCondition:     {met: "Removed"},
		clusterv1.PausedCondition:           isPaused,
	},
	reflect.TypeFor[*clusterv1.Cluster](): {
		clusterv1.InfrastructureReadyCondition:                 {met: "InfrastructureReady", unmet: untold, up: true},
		clusterv1.ClusterControlPlaneInitializedCondition:      {met: "ControlPlaneInitialized", unmet: untold, up: true},
		clusterv1.ClusterControlPlaneAvailableCondition:        silent,
		clusterv1.ClusterWorkersAvailableCondition:             silent,
		clusterv1.AvailableCondition:                           silent,
		clusterv1.ClusterControlPlaneMachinesReadyCondition:    silent,
		clusterv1.ClusterWorkerMachinesReadyCondition:          silent,
		clusterv1.ClusterControlPlaneMachinesUpToDateCondition: silent,
		clusterv1.ClusterWorkerMachinesUpToDateCondition:       silent,
		clusterv1.ClusterTopologyReconciledCondition:           silent,
		clusterv1.ClusterRemoteConnectionProbeCondition:        {met: "ClusterReached", unmet: "ClusterNotReached", rests: true, trouble: true, up: true},
		clusterv1.RollingOutCondition:                          silent,
		clusterv1.ScalingUpCondition:                           silent,
		clusterv1.ScalingDownCondition:                         silent,
		clusterv1.RemediatingCondition:                         silent,
		clusterv1.DeletingCondition:                            isDeleting,
		clusterv1.PausedCondition:                              isPaused,
	},
	reflect.TypeFor[*rkev1.RKEControlPlane](): {
		rkev1.ReadyCondition:                        {met: "Ready", trouble: true},
		rkev1.ProvisionedCondition:                  {met: "Provisioned", unmet: untold},
		rkev1.BootstrappedCondition:                 {met: "Bootstrapped", unmet: untold, up: true},
		rkev1.StableCondition:                       silent,
		rkev1.UpdatedCondition:                      silent,
		rkev1.ReconciledCondition:                   {met: untold, trouble: true},
		"ConfigurationAccepted":                     {met: "ConfigurationAccepted", trouble: true, up: true},
		"KubeconfigReady":                           {met: "KubeconfigReady", unmet: untold, up: true},
		clusterv1.AvailableCondition:                {met: "Available", unmet: "NotAvailable", rests: true, trouble: true, up: true},
		clusterv1.RollingOutCondition:               busy("RollingOut", "RolledOut"),
		clusterv1.ScalingUpCondition:                busy("ScalingUp", "ScaledUp"),
		clusterv1.ScalingDownCondition:              busy("ScalingDown", "ScaledDown"),
		clusterv1.RemediatingCondition:              busy("Remediating", "Remediated"),
		clusterv1.MachinesReadyCondition:            silent,
		clusterv1.MachinesUpToDateCondition:         silent,
		clusterv1.DeletingCondition:                 isDeleting,
		clusterv1.PausedCondition:                   isPaused,
		rkev1.SystemUpgradeControllerReadyCondition: silent,
	},
	reflect.TypeFor[*clusterv1.MachineDeployment](): {
		clusterv1.AvailableCondition:        {met: "Available", unmet: "NotAvailable", rests: true},
		clusterv1.RollingOutCondition:       busy("RollingOut", "RolledOut"),
		clusterv1.ScalingUpCondition:        busy("ScalingUp", "ScaledUp"),
		clusterv1.ScalingDownCondition:      busy("ScalingDown", "ScaledDown"),
		clusterv1.RemediatingCondition:      busy("Remediating", "Remediated"),
		clusterv1.MachinesReadyCondition:    silent,
		clusterv1.MachinesUpToDateCondition: silent,
		clusterv1.DeletingCondition:         isDeleting,
		clusterv1.PausedCondition:           isPaused,
	},
	reflect.TypeFor[*clusterv1.Machine](): {
		clusterv1.InfrastructureReadyCondition:         {met: "InfrastructureReady", unmet: "WaitingForInfrastructure"},
		clusterv1.BootstrapConfigReadyCondition:        {met: "BootstrapDataReady", unmet: "WaitingForBootstrapData"},
		clusterv1.MachineNodeReadyCondition:            {met: "NodeReady", unmet: "NodeNotReady", rests: true, trouble: true, up: true},
		clusterv1.MachineNodeHealthyCondition:          silent,
		rkev1.ReconciledCondition:                      {met: "UpToDate", trouble: true, up: true},
		rkev1.PlanAppliedCondition:                     silent,
		clusterv1.MachineHealthCheckSucceededCondition: {met: untold, trouble: true, up: true},
		clusterv1.MachineOwnerRemediatedCondition:      {met: "Remediated", unmet: "Remediating", up: true},
		clusterv1.DeletingCondition:                    isDeleting,
		clusterv1.PausedCondition:                      isPaused,
		clusterv1.ReadyCondition:                       silent,
		clusterv1.AvailableCondition:                   silent,
		clusterv1.MachineUpToDateCondition:             silent,
		clusterv1.MachineUpdatingCondition:             silent,
	},
	reflect.TypeFor[*rkev1.RKEBootstrap](): {
		rkev1.IdentityReadyCondition:   {met: "IdentityReady", unmet: untold},
		rkev1.DataSecretReadyCondition: {met: "DataSecretReady"},
		rkev1.PlanAppliedCondition:     {met: "PlanApplied", prefix: "Plan", trouble: true},
		rkev1.ReconciledCondition:      silent,
		rkev1.ReadyCondition:           silent,
		clusterv1.PausedCondition:      isPaused,
	},
}

func tellingOf(object conditioned, conditionType string) telling {
	if t, ok := tellings[reflect.TypeOf(object)][conditionType]; ok {
		return t
	}
	return other
}

// reason is that of the Event; empty if there is none.
func (t telling) reason(c metav1.Condition) string {
	reason := t.unmet
	if c.Status == metav1.ConditionTrue {
		reason = t.met
	}
	switch reason {
	case untold:
		return ""
	case "":
		return t.prefix + c.Reason
	}
	return reason
}
