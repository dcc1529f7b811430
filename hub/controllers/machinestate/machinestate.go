// Package machinestate reads what hub/rollout wants to know of a machine from the machine's objects, so that all controllers that ask rollout
// see a machine alike. It makes no requests.
package machinestate

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/plans"
)

// Of reads a machine. secret is nil until the machine's plan Secret is made. What the machine's Node tells is added by the state's ReadNode,
// where the cluster can be asked. What depends on the wanted plan is left open. An error means that the agent's report cannot be read.
func Of(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, secret *corev1.Secret) (rollout.Machine, rollout.Report, error) {
	m := rollout.Machine{
		Name: machine.Name, ID: bootstrap.Labels[rkev1.MachineIDLabel],
		Etcd:         has(machine, bootstrap, rkev1.EtcdRoleLabel),
		ControlPlane: has(machine, bootstrap, rkev1.ControlPlaneRoleLabel),
		Worker:       has(machine, bootstrap, rkev1.WorkerRoleLabel),
		Deleting:     !machine.DeletionTimestamp.IsZero() || !bootstrap.DeletionTimestamp.IsZero(),
		Identity:     secret != nil, Unusable: unusable(machine), Removal: removal(machine),
		FailureDomain: cmp.Or(machine.Status.FailureDomain, machine.Spec.FailureDomain),
	}
	if machine.Status.NodeInfo != nil {
		m.Version = machine.Status.NodeInfo.KubeletVersion
	}
	if secret == nil {
		return m, rollout.Report{}, nil
	}
	m.Init = secret.Labels[rkev1.InitNodeLabel] == "true"
	m.JoinURL = secret.Annotations[rkev1.JoinURLAnnotation]
	m.JoinedTo = secret.Annotations[rkev1.JoinedToAnnotation]
	m.ProbesPassed = secret.Annotations[rkev1.PlanProbesPassedAnnotation] != ""
	m.Drain = rollout.Drain{
		Asked: secret.Annotations[rkev1.DrainOptionsAnnotation], Done: secret.Annotations[rkev1.DrainDoneAnnotation],
		Error: secret.Annotations[rkev1.DrainErrorAnnotation], Waiting: secret.Annotations[rkev1.DrainWaitingAnnotation], Uncordon: secret.Annotations[rkev1.UncordonAnnotation],
	}
	report, err := rollout.ReadReport(secret.Data)
	m.Progress, m.CheckedIn, m.Unhealthy, m.Sick = report.Progress, report.CheckedIn(), report.Unhealthy, report.Sick
	m.Underway, m.Doing = underway(secret.Data, report), doing(report)
	if m.Etcd {
		m.EtcdProbe, m.LastSeen = report.EtcdProbe(), lastSeen(secret)
	}
	if c := conditions.Get(bootstrap, rkev1.PlanAppliedCondition); c != nil && m.Progress == rollout.ProgressFailed {
		m.Failure = c.Message
	}
	return m, report, err
}

// lastSeen is when the gateway last saw the machine's agent; zero where that was never recorded.
func lastSeen(secret *corev1.Secret) time.Time {
	seen, err := time.Parse(time.RFC3339, secret.Annotations[rkev1.AgentLastSeenAnnotation])
	if err != nil {
		return time.Time{}
	}
	return seen
}

// Change says what a machine goes through when it is given another plan than the one that it has. Plans that differ in nothing but how they
// are written down are the same: a machine is not bothered for another spelling.
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

// underway compares the delivered plan with the one before it. Where that one is not known, the worst is assumed.
func underway(data plans.SecretData, report rollout.Report) rollout.Change {
	switch {
	case report.Checksum == "" || report.Progress == rollout.ProgressApplied:
		return rollout.ChangeNone
	case report.Status.AppliedChecksum == "":
		return rollout.ChangeFirst
	}
	applied, err := plans.Decode(data[plans.KeyAppliedPlan])
	if err != nil {
		return rollout.ChangeDrain
	}
	return Change(applied, report.Delivered)
}

// doing is what the agent says that it is at. It leaves out what grows all the time, since a condition is written for each change of it.
func doing(report rollout.Report) string {
	p := report.Status.Progress
	if p == nil || p.Checksum != report.Checksum || report.Progress != rollout.ProgressApplying {
		return ""
	}
	what := map[plans.ProgressPhase]string{
		plans.PhaseFiles: "it writes files", plans.PhasePulling: "it pulls the image of instruction ", plans.PhaseRunning: "it runs instruction ",
	}[p.Phase]
	if what == "" || p.Phase == plans.PhaseFiles {
		return what
	}
	return fmt.Sprintf("%s%s (%d of %d)", what, p.Name, p.Index+1, p.Total)
}

func has(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, role string) bool {
	return bootstrap.Labels[role] == "true" || machine.Labels[role] == "true"
}

// Foreign tells whether somebody else's infrastructure provider makes the machine. A machine that its user has brought has no
// infrastructure beside itself: what the hub knows of it, it has from the machine and its Node.
func Foreign(machine *clusterv1.Machine) bool {
	return machine.Spec.InfrastructureRef.APIGroup != rkev1.GroupVersion.Group
}

// unusable says why the machine can neither start nor join a cluster yet; empty if it can. Provider ID and addresses of a machine are known
// once its infrastructure is there, and a Node cannot be told another provider ID later. A machine that its user has brought has nothing to
// wait for: Cluster API learns of its Node only after the machine was given a plan.
func unusable(machine *clusterv1.Machine) string {
	if !Foreign(machine) || ptr.Deref(machine.Status.Initialization.InfrastructureProvisioned, false) {
		return ""
	}
	ref := machine.Spec.InfrastructureRef
	return "has no infrastructure yet: " + ref.Kind + " " + ref.Name + " is not provisioned"
}

// removal tells whether Cluster API has done all that it does to a machine before its member of etcd is removed.
func removal(machine *clusterv1.Machine) rollout.Removal {
	if machine.DeletionTimestamp.IsZero() || conditions.GetReason(machine, clusterv1.MachineDeletingCondition) != clusterv1.MachineDeletingWaitingForPreTerminateHookReason {
		return rollout.RemovalNone
	}
	return rollout.RemovalDue
}
