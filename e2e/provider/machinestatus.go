package provider

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
)

var machineConditions = []string{labv1.ReadyCondition, labv1.HostOnCondition, labv1.BootstrapFinishedCondition, clusterv1.DeletingCondition}

// observation is what a look at a host has shown.
type observation struct {
	exists, on          bool
	address, providerID string
	// sentinel tells that the bootstrap data came to a good end, bootstrapEnded that it came to an end. Both are only looked at on a
	// host that is on, until the first was seen.
	sentinel, bootstrapEnded bool
	bootstrapErrors          []string
}

func (s *machineScope) provisioned() bool {
	return ptr.Deref(s.labMachine.Status.Initialization.Provisioned, false)
}

func (s *machineScope) bootstrapped() bool {
	return conditions.IsTrue(s.labMachine, labv1.BootstrapFinishedCondition)
}

// waits tells what must come first before the host may be made, if anything.
func (s *machineScope) waits() (reason, message string) {
	switch {
	case s.machine == nil || s.cluster == nil:
		return labv1.WaitingForOwnerReason, "Waiting for a Machine of a Cluster to own this LabMachine"
	case !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false):
		return labv1.WaitingForInfrastructureReason, fmt.Sprintf("Waiting for the infrastructure of Cluster %s", s.cluster.Name)
	case s.machine.Spec.Bootstrap.DataSecretName == nil:
		return labv1.WaitingForBootstrapDataReason, "Waiting for the Machine to have bootstrap data"
	}
	return "", ""
}

// lookAgain tells when to look at the host again. Everything else is watched.
func (s *machineScope) lookAgain() ctrl.Result {
	switch {
	case !s.host.exists:
		return ctrl.Result{}
	case s.bootstrapped() || s.host.sentinel:
		return ctrl.Result{RequeueAfter: powerInterval}
	}
	return ctrl.Result{RequeueAfter: bootstrapInterval}
}

// setMachineStatus makes the status of what a pass has found.
func setMachineStatus(s *machineScope) {
	m := s.labMachine
	if !m.DeletionTimestamp.IsZero() {
		deleting := metav1.Condition{Type: clusterv1.DeletingCondition, Status: metav1.ConditionTrue, Reason: clusterv1.DeletionCompletedReason}
		if s.failed != nil {
			deleting.Reason, deleting.Message = labv1.HostFailedReason, s.failed.Error()
		}
		conditions.Set(m, deleting)
		conditions.Set(m, metav1.Condition{Type: labv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: clusterv1.DeletingReason,
			Message: deleting.Message})
		return
	}
	if s.host.on {
		m.Spec.ProviderID = s.host.providerID
		m.Status.Initialization.Provisioned = ptr.To(true)
		if s.machine != nil {
			m.Status.FailureDomain = s.machine.Spec.FailureDomain
		}
		m.Status.Addresses = []clusterv1.MachineAddress{
			{Type: clusterv1.MachineHostName, Address: m.Name},
			{Type: clusterv1.MachineInternalIP, Address: s.host.address},
		}
	}
	conditions.Set(m, s.hostOn())
	if !s.bootstrapped() {
		conditions.Set(m, s.bootstrapFinished())
	}
	conditions.Set(m, ready(m))
}

func (s *machineScope) hostOn() metav1.Condition {
	c := metav1.Condition{Type: labv1.HostOnCondition, Status: metav1.ConditionFalse}
	waits, message := s.waits()
	switch {
	case s.failed != nil:
		c.Reason, c.Message = labv1.HostFailedReason, s.failed.Error()
	case s.host.on:
		c.Status, c.Reason = metav1.ConditionTrue, labv1.HostOnReason
	case s.host.exists && s.provisioned():
		c.Reason, c.Message = labv1.HostOffReason, "The host is off"
	case s.host.exists:
		c.Reason, c.Message = labv1.HostStartingReason, "The host starts"
	case waits != "" && !s.provisioned():
		c.Reason, c.Message = waits, message
	default:
		c.Reason, c.Message = labv1.HostGoneReason, "The host is not in the lab any more; somebody has removed it"
	}
	return c
}

func (s *machineScope) bootstrapFinished() metav1.Condition {
	c := metav1.Condition{Type: labv1.BootstrapFinishedCondition, Status: metav1.ConditionFalse, Reason: labv1.BootstrapRunningReason}
	switch {
	case s.host.sentinel:
		c.Status, c.Reason = metav1.ConditionTrue, labv1.BootstrapFinishedReason
	case s.host.bootstrapEnded:
		c.Reason = labv1.BootstrapFailedReason
		c.Message = "The bootstrap data has ended without writing " + sentinelFile +
			"; its output is in /var/log/cloud-init-output.log on the host"
		if len(s.host.bootstrapErrors) > 0 {
			c.Message += ". cloud-init says: " + strings.Join(s.host.bootstrapErrors, "; ")
		}
	case s.host.exists:
		c.Message = "The bootstrap data runs"
	default:
		c.Reason, c.Message = labv1.BootstrapNotStartedReason, "The host is not there yet"
	}
	return c
}

// ready is true if all other conditions are, and otherwise says what the first says that is not.
func ready(m *labv1.LabMachine) metav1.Condition {
	for _, kind := range []string{labv1.HostOnCondition, labv1.BootstrapFinishedCondition} {
		if c := conditions.Get(m, kind); c.Status != metav1.ConditionTrue {
			return metav1.Condition{Type: labv1.ReadyCondition, Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	return metav1.Condition{Type: labv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: labv1.ProvisionedReason}
}
