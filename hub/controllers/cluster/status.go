package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/hub/api/fieldsupport"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/patch"
)

// ownedConditions are those that no other controller writes.
var ownedConditions = []string{
	provisioningv1.CreatedCondition,
	provisioningv1.RKEClusterCondition,
	provisioningv1.MachinePoolsReadyCondition,
	provisioningv1.ProvisionedCondition,
	provisioningv1.UpdatedCondition,
	provisioningv1.ReadyCondition,
	provisioningv1.RemovedCondition,
	provisioningv1.ReconcilingCondition,
}

// setStatus sets the status. What could not be read keeps its status.
func setStatus(s *scope) {
	c := s.cluster
	if !s.unread.spec {
		c.Status.ObservedGeneration = c.Generation
	}
	if !c.DeletionTimestamp.IsZero() {
		setRemoval(s)
		c.Status.Ready = false
		return
	}
	if s.management != nil {
		c.Status.ClusterName = s.management.Name
		c.Status.FleetWorkspaceName = c.Namespace
	}
	if !s.unread.kubeconfig {
		c.Status.ClientSecretName = s.kubeconfigSecret
	}
	if s.management != nil || s.created != nil {
		conditions.Set(c, s.created.Condition(provisioningv1.CreatedCondition, "Created"))
	}
	if !s.unread.spec {
		conditions.Set(c, specCondition(s))
	}
	if s.imported() {
		setImported(s)
		return
	}
	if !s.unread.pools {
		setPools(s)
	}
	if s.unread.controlPlane {
		return
	}
	controlPlane := readyCondition(s)
	ready := withPools(controlPlane, s)
	conditions.Set(c, ready)
	if !s.unread.spec {
		updated := updatedCondition(s)
		conditions.Set(c, updated)
		setReconciling(c, updated)
	}
	conditions.Set(c, provisionedCondition(s, controlPlane))
	c.Status.Ready = ready.Status == metav1.ConditionTrue
}

// specCondition says whether the whole spec was passed on, and which of its fields have no effect.
func specCondition(s *scope) metav1.Condition {
	condition := metav1.Condition{Type: provisioningv1.RKEClusterCondition, Status: metav1.ConditionTrue, Reason: "Accepted"}
	warnings := fieldsupport.Warnings(&s.cluster.Spec)
	if config := s.cluster.Spec.RKEConfig; config != nil {
		for i := range config.MachinePools {
			warnings = append(warnings, pool.Warnings(&config.MachinePools[i])...)
		}
	}
	if len(warnings) > 0 {
		condition.Reason, condition.Message = "AcceptedWithWarnings", strings.Join(warnings, "; ")
	}
	if all := s.problems(); len(all) > 0 {
		sum := sumUp(all)
		condition.Status, condition.Reason = metav1.ConditionFalse, sum.Reason
		condition.Message = strings.Join(append([]string{sum.Message}, warnings...), "; ")
	}
	return condition
}

// problems are all problems of the spec.
func (s *scope) problems() []*cause.Cause {
	all := slices.Concat(s.invalid, s.partial)
	if s.unwritten != nil {
		all = append(all, s.unwritten)
	}
	for _, p := range s.pools {
		if p.problem != nil {
			all = append(all, p.problem)
		}
	}
	return all
}

// readyCondition is that of the control plane, or why there is no control plane.
func readyCondition(s *scope) metav1.Condition {
	condition := metav1.Condition{Type: provisioningv1.ReadyCondition, Status: metav1.ConditionFalse}
	switch {
	case s.controlPlane != nil:
		return mirror(s.controlPlane, rkev1.ReadyCondition, provisioningv1.ReadyCondition)
	case len(s.invalid) > 0:
		sum := sumUp(s.invalid)
		condition.Reason, condition.Message = sum.Reason, sum.Message
	case s.created != nil:
		condition.Reason, condition.Message = s.created.Reason, s.created.Message
	default:
		condition.Reason, condition.Message = reasons.WaitingForControlPlane, "Waiting for the RKEControlPlane to be created"
	}
	return condition
}

// notPassedOn begins what Updated says of a spec of which Cluster API has not got all.
const notPassedOn = "The change was not passed on: "

// updatedCondition says whether all machines have what the spec asks for. A spec that is not passed on reaches no machine.
func updatedCondition(s *scope) metav1.Condition {
	condition := metav1.Condition{Type: provisioningv1.UpdatedCondition, Status: metav1.ConditionFalse}
	switch {
	case len(s.invalid) > 0:
		sum := sumUp(s.invalid)
		condition.Reason, condition.Message = sum.Reason, notPassedOn+sum.Message
	case s.unwritten != nil:
		condition.Reason, condition.Message = s.unwritten.Reason, notPassedOn+s.unwritten.Message
	case s.controlPlane == nil:
		condition.Reason, condition.Message = reasons.WaitingForControlPlane, "Waiting for the RKEControlPlane to be created"
	case s.created != nil:
		condition.Reason, condition.Message = s.created.Reason, notPassedOn+s.created.Message
	case s.controlPlane.Status.ObservedGeneration < max(s.controlPlane.Generation, s.applied):
		condition.Status = metav1.ConditionUnknown
		condition.Reason, condition.Message = reasons.WaitingForControlPlane, "Waiting for the RKEControlPlane to be reconciled"
	case conditions.Has(s.controlPlane, rkev1.UpdatedCondition):
		return mirror(s.controlPlane, rkev1.UpdatedCondition, provisioningv1.UpdatedCondition)
	default:
		return mirror(s.controlPlane, rkev1.ReadyCondition, provisioningv1.UpdatedCondition)
	}
	return condition
}

// setReconciling sets Reconciling where Ready is not about all of the spec: machines do not have it yet, or a part of it was not passed on.
func setReconciling(c *provisioningv1.Cluster, updated metav1.Condition) {
	from := &updated
	if updated.Status == metav1.ConditionTrue && conditions.IsFalse(c, provisioningv1.RKEClusterCondition) {
		from = conditions.Get(c, provisioningv1.RKEClusterCondition)
	}
	if from.Status == metav1.ConditionTrue {
		conditions.Delete(c, provisioningv1.ReconcilingCondition)
		return
	}
	conditions.Set(c, metav1.Condition{Type: provisioningv1.ReconcilingCondition, Status: metav1.ConditionTrue, Reason: from.Reason,
		Message: from.Message})
}

// provisionedCondition is true from when the cluster was ready for the first time.
func provisionedCondition(s *scope, ready metav1.Condition) metav1.Condition {
	condition := metav1.Condition{Type: provisioningv1.ProvisionedCondition, Status: metav1.ConditionTrue, Reason: "Provisioned"}
	if conditions.IsTrue(s.cluster, provisioningv1.ProvisionedCondition) {
		return condition
	}
	initialized := s.controlPlane != nil && ptr.Deref(s.controlPlane.Status.Initialization.ControlPlaneInitialized, false)
	if ready.Status == metav1.ConditionTrue && initialized {
		return condition
	}
	condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, ready.Reason, ready.Message
	if ready.Status == metav1.ConditionTrue {
		condition.Reason, condition.Message = reasons.WaitingForInitialization, "Waiting for the control plane of the cluster to be initialized"
	}
	return condition
}

// managementConditions are copied from the Cluster to the management Cluster.
var managementConditions = []string{managementv3.ProvisionedCondition, managementv3.ReadyCondition}

// reportManagement writes the status of the management Cluster, except conditions of other writers.
func (r *Reconciler) reportManagement(ctx context.Context, s *scope) error {
	if s.management == nil || !s.cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	helper := patch.NewHelper(r.Client, s.management, fieldOwner, managementConditions...)
	status, runtime := &s.management.Status, release.Runtime(s.cluster.Spec.KubernetesVersion)
	status.Driver, status.Provider = runtime, runtime
	if s.imported() {
		status.Driver, status.Provider = "imported", importedRuntime(s.management)
	}
	for _, conditionType := range managementConditions {
		conditions.SetMirrorCondition(s.cluster, s.management, conditionType)
	}
	return helper.Patch(ctx, s.management)
}

// mirror copies a condition of the control plane to a condition of the Cluster.
func mirror(from *rkev1.RKEControlPlane, fromType, toType string) metav1.Condition {
	source := conditions.Get(from, fromType)
	if source == nil {
		return metav1.Condition{Type: toType, Status: metav1.ConditionUnknown, Reason: reasons.WaitingForControlPlane,
			Message: fmt.Sprintf("Waiting for the RKEControlPlane to report its condition %s", fromType)}
	}
	return metav1.Condition{Type: toType, Status: source.Status, Reason: source.Reason, Message: source.Message}
}

// setRemoval sets the conditions of a deletion.
func setRemoval(s *scope) {
	removed := s.removal.Condition(provisioningv1.RemovedCondition, clusterv1.DeletionCompletedReason)
	conditions.Set(s.cluster, removed)
	conditions.Delete(s.cluster, provisioningv1.ReconcilingCondition)
	conditions.Set(s.cluster, metav1.Condition{Type: provisioningv1.ReadyCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.DeletingReason, Message: removed.Message})
}

// sumUp merges problems: the reason of the first, the messages of all.
func sumUp(problems []*cause.Cause) *cause.Cause {
	messages := make([]string, len(problems))
	for i, p := range problems {
		messages[i] = p.Message
	}
	return cause.New(problems[0].Reason, "%s", strings.Join(messages, "; "))
}
