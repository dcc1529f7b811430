// Package machinestate reads the rollout state of a machine from its objects: Machine, RKEBootstrap, plan Secret and Node. All controllers
// that ask hub/plan/rollout use it, so that they see a machine alike. It makes no requests.
package machinestate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/hub/api/crds"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/plans"
)

// Of reads the state of a machine and the report of its agent. secret is nil until the plan Secret exists. The fields that come from the
// Node are set by the state's ReadNode, where the cluster can be asked; Problem, Change, WantVersion and Drain options depend on the wanted
// plan and are left to the caller. An error means that the plan Secret's data cannot be decoded; the state is usable nevertheless.
func Of(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, secret *corev1.Secret) (rollout.Machine, rollout.Report, error) {
	if secret == nil {
		return OfReport(machine, bootstrap, nil, rollout.Report{}), rollout.Report{}, nil
	}
	report, err := rollout.ReadReport(secret.Data)
	return OfReport(machine, bootstrap, secret, report), report, err
}

// OfReport is Of for a report that has been read already; the report of no Secret is zero.
func OfReport(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, secret *corev1.Secret, report rollout.Report) rollout.Machine {
	m := rollout.Machine{
		Name: machine.Name, ID: bootstrap.Labels[rkev1.MachineIDLabel],
		Etcd:         hasRole(machine, bootstrap, rkev1.EtcdRoleLabel),
		ControlPlane: hasRole(machine, bootstrap, rkev1.ControlPlaneRoleLabel),
		Worker:       hasRole(machine, bootstrap, rkev1.WorkerRoleLabel),
		Created:      machine.CreationTimestamp.Time,
		Deleting:     !machine.DeletionTimestamp.IsZero() || !bootstrap.DeletionTimestamp.IsZero(),
		PlanSecret:   rkev1.PlanSecretName(bootstrap.Name), HasPlanSecret: secret != nil,
		Provided: HasProvider(machine), Unusable: unusable(machine, bootstrap), Removal: removal(machine),
		FailureDomain: cmp.Or(machine.Status.FailureDomain, machine.Spec.FailureDomain),
	}
	if machine.Status.NodeInfo != nil {
		m.Version = machine.Status.NodeInfo.KubeletVersion
	}
	if secret == nil {
		return m
	}
	m.Init = secret.Labels[rkev1.InitNodeLabel] == "true"
	m.JoinURL = secret.Annotations[rkev1.JoinURLAnnotation]
	m.JoinedTo = secret.Annotations[rkev1.JoinedToAnnotation]
	m.ProbesPassed = secret.Annotations[rkev1.PlanProbesPassedAnnotation] != ""
	m.Drain = rollout.Drain{
		Requested: secret.Annotations[rkev1.DrainOptionsAnnotation], Done: secret.Annotations[rkev1.DrainDoneAnnotation],
		Error: secret.Annotations[rkev1.DrainErrorAnnotation], Waiting: secret.Annotations[rkev1.DrainWaitingAnnotation],
		Uncordon: secret.Annotations[rkev1.UncordonAnnotation],
	}
	m.Progress, m.CheckedIn, m.Unhealthy, m.HealthUnknown = report.Progress, report.CheckedIn(), report.Unhealthy, report.HealthUnknown
	m.Underway, m.AgentPhase = underway(secret, report), agentPhase(report)
	if m.Server() {
		// What cannot be parsed counts as never seen, the zero time.
		m.LastSeen, _ = time.Parse(time.RFC3339, secret.Annotations[rkev1.AgentLastSeenAnnotation])
	}
	if m.Server() && strings.Contains(m.Version, release.RKE2) && secret.Annotations[rkev1.PlanRestartsAnnotation] == "true" {
		// What cannot be parsed counts as long ago.
		m.ProbesPassedAt, _ = time.Parse(time.RFC3339, secret.Annotations[rkev1.PlanProbesPassedAnnotation])
	}
	if m.Etcd {
		m.EtcdProbe = report.EtcdProbe()
	}
	if m.Progress == rollout.ProgressFailed {
		m.Failure = failure(machine, report)
	}
	return m
}

// failure is what PlanApplied says of a failed plan, with what happens next. The condition follows the report: until it is about this
// failure, the report speaks alone.
func failure(machine *clusterv1.Machine, report rollout.Report) string {
	output := report.FailedOutput()
	c := conditions.Get(machine, rkev1.PlanAppliedCondition)
	if c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, output) {
		return c.Message
	}
	return strings.TrimSuffix("Applying the plan failed; "+output, "; ")
}

// Change compares two plans of a machine. Plans that differ only in their encoding are the same, so that no machine gets a plan for that.
func Change(before, after plans.Plan) rollout.Change {
	changes := plans.Diff(before, after)
	switch {
	case changes.Empty():
		return rollout.ChangeNone
	case changes.Minor():
		return rollout.ChangeMinor
	}
	switch render.ImpactOf(before, after) {
	case render.ImpactNone:
		return rollout.ChangeMinor
	case render.ImpactRestart:
		return rollout.ChangeRestart
	}
	return rollout.ChangeDrain
}

// underway compares the delivered plan with the one that was applied before. Where that cannot be decoded, the worst is assumed. What a
// plan does that was replaced before it was applied counts, too.
func underway(secret *corev1.Secret, report rollout.Report) rollout.Change {
	switch {
	case report.Checksum == "" || report.Progress == rollout.ProgressApplied:
		return rollout.ChangeNone
	case report.Status.AppliedChecksum == "":
		return rollout.ChangeFirst
	}
	applied, err := plans.Decode(secret.Data[plans.KeyAppliedPlan])
	if err != nil {
		return rollout.ChangeDrain
	}
	return rollout.Worst(Change(applied, report.Delivered), rollout.Change(secret.Annotations[rkev1.PlanReplacedAnnotation]))
}

// agentPhase is what the agent reports to be doing, for messages, or why it has failed and retries. It leaves out bytes and times: each
// change of a condition is a write.
func agentPhase(report rollout.Report) string {
	p := report.Status.Progress
	switch {
	case report.Progress != rollout.ProgressApplying:
		return ""
	case p == nil && report.Status.FailureCount > 0:
		return strings.TrimSuffix("retrying after a failure; "+report.FailedOutput(), "; ")
	case p == nil || p.Checksum != report.Checksum:
		return ""
	}
	what := map[plans.ProgressPhase]string{
		plans.PhaseFiles: "writing files", plans.PhasePulling: "pulling the image of instruction ", plans.PhaseRunning: "running instruction ",
	}[p.Phase]
	if what == "" || p.Phase == plans.PhaseFiles {
		return what
	}
	return fmt.Sprintf("%s%s (%d of %d)", what, p.Name, p.Index+1, p.Total)
}

func hasRole(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, label string) bool {
	return bootstrap.Labels[label] == "true" || machine.Labels[label] == "true"
}

// HasProvider reports whether an infrastructure provider other than the hub makes the machine. A custom machine, which its user has
// brought, has no infrastructure of its own.
func HasProvider(machine *clusterv1.Machine) bool {
	return machine.Spec.InfrastructureRef.APIGroup != rkev1.GroupVersion.Group
}

// HasNodeDriver reports whether a node driver makes the machine. The provider ID of such a machine is that of its Node, so that by the
// contract of Cluster API its infrastructure is provisioned only once it has a Node.
func HasNodeDriver(machine *clusterv1.Machine) bool {
	return machine.Spec.InfrastructureRef.APIGroup == crds.NodeDriverGroup
}

// unusable says why the machine can neither start nor join a cluster yet; empty if it can. Provider ID and addresses of a machine are known
// once its infrastructure is provisioned, and a Node's provider ID cannot be changed later. The addresses of a machine of a node driver are
// known once it has been created. A custom machine waits for nothing: Cluster API learns of its Node only after it was given a plan.
func unusable(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap) string {
	if !HasProvider(machine) || ptr.Deref(machine.Status.Initialization.InfrastructureProvisioned, false) {
		return ""
	}
	ref := machine.Spec.InfrastructureRef
	if HasNodeDriver(machine) {
		if bootstrap.Annotations[rkev1.InfrastructureAddressesAnnotation] != "" {
			return ""
		}
		return "has not been created yet: see " + ref.Kind + " " + ref.Name
	}
	why := "has no infrastructure yet: " + ref.Kind + " " + ref.Name + " is not provisioned"
	if failure := providerFailure(machine); failure != "" {
		why += "; its provider says: " + message.Bound(stable(failure), message.MaxError)
	}
	return why
}

// varying finds what differs in each answer of a cloud: IDs, as in "RequestID: 0f0e1c4a-90a2-4d11-8b2e-6f1d2c3b4a59, api error ...", the
// time in errors of Microsoft Entra ID, and the encrypted part of what AWS says where a right is missing.
var varying = regexp.MustCompile(`(?i)\b(` +
	`(?:(?:request|correlation|trace|activity)[ _-]?id|timestamp|encoded authorization failure message)\W{1,4}` +
	`)(?:\d{4}-\d\d-\d\d[ T][\d:.]+Z?|[\w-]{16,})`)

// stable is a text of a provider in one line, without what differs in each answer of a cloud. With each other text the Machine would be
// written, and providers that watch it would ask the cloud again at once, for the next one.
func stable(text string) string {
	return varying.ReplaceAllString(strings.Join(strings.Fields(text), " "), "${1}...")
}

// providerFailure is why the infrastructure provider cannot provision the machine; empty where it only waits. Cluster API takes it from the
// infrastructure machine: a final failure, or a condition that is one by its severity, as the contract v1beta1 has them.
//
//nolint:staticcheck // deprecated, and the only place for what these providers report
func providerFailure(machine *clusterv1.Machine) string {
	deprecated := machine.Status.Deprecated
	if deprecated == nil || deprecated.V1Beta1 == nil {
		return ""
	}
	if final := ptr.Deref(deprecated.V1Beta1.FailureMessage, ""); final != "" {
		// Cluster API begins with the name of the object, which the caller has.
		if _, own, found := strings.Cut(final, fmt.Sprintf(" with name %q: ", machine.Spec.InfrastructureRef.Name)); found {
			return own
		}
		return final
	}
	for _, c := range deprecated.V1Beta1.Conditions {
		if c.Type == clusterv1.InfrastructureReadyV1Beta1Condition && c.Status == corev1.ConditionFalse &&
			c.Severity == clusterv1.ConditionSeverityError {
			return c.Message
		}
	}
	return ""
}

// removal reports RemovalDue once Cluster API waits for nothing but the hub's pre-terminate hook of the machine.
func removal(machine *clusterv1.Machine) rollout.Removal {
	if machine.DeletionTimestamp.IsZero() || !AwaitsHooks(machine) || len(OtherHooks(machine)) > 0 {
		return rollout.RemovalNone
	}
	return rollout.RemovalDue
}

// AwaitsHooks reports whether Cluster API has drained the Node of a Machine that is being deleted, and waits for pre-terminate hooks.
func AwaitsHooks(machine *clusterv1.Machine) bool {
	return conditions.GetReason(machine, clusterv1.MachineDeletingCondition) == clusterv1.MachineDeletingWaitingForPreTerminateHookReason
}

// OtherHooks are the pre-terminate hooks of a Machine that are not the hub's, sorted.
func OtherHooks(machine *clusterv1.Machine) (hooks []string) {
	for key := range machine.Annotations {
		if strings.HasPrefix(key, clusterv1.PreTerminateDeleteHookAnnotationPrefix) && key != rkev1.RKEBootstrapCleanupPreTerminateHook {
			hooks = append(hooks, key)
		}
	}
	slices.Sort(hooks)
	return hooks
}
