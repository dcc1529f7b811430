package rkecontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/patch"
)

// maxNames is how many names a message holds at most.
const maxNames = 5

// updatesFor is how long a reconcile writes conditions of machines. The rest is written by the next one, which comes at once: a rollout
// must not wait for the conditions of a thousand machines.
const updatesFor = 5 * time.Second

// updateMachines writes the condition Reconciled of Machines, and Cluster API's UpToDate of those outside of MachineDeployments: Cluster
// API writes it where a MachineDeployment says what is up to date, and leaves it to others elsewhere.
func (r *Reconciler) updateMachines(ctx context.Context, s *scope) error {
	s.work = workOn(s.machines, r.Now())
	s.backlog = r.backlog.set(client.ObjectKeyFromObject(s.controlPlane), s.work, r.Now())
	shownAfter, waitShownAfter := s.backlog.progressShownAfter(), s.backlog.firstWaitShownAfter()
	until := r.Now().Add(updatesFor)
	var mu sync.Mutex
	requeue := func(after time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		s.requeue(after)
	}
	return forEach(s.machines, func(m *machine) error {
		now := r.Now()
		if !now.Before(until) {
			requeue(atOnce)
			return nil
		}
		wait := cmp.Or(m.untilProgressShown(shownAfter, now), m.untilFirstWaitShown(waitShownAfter, now))
		requeue(wait)
		return r.updateMachine(ctx, s, m, wait > 0)
	})
}

// atOnce is the delay of the next reconcile when this one has left something.
const atOnce = time.Millisecond

// updateMachine writes the conditions of a machine; without Reconciled if that is hidden, as it is.
func (r *Reconciler) updateMachine(ctx context.Context, s *scope, m *machine, hidden bool) error {
	errs := []error{r.setVersion(ctx, s, m)}
	var owned []metav1.Condition
	if !hidden {
		reconciled := metav1.Condition{Type: rkev1.ReconciledCondition, Status: reasons.Get(m.decision.Reason).Status, Reason: m.decision.Reason,
			Message: m.decision.Message}
		if m.decision.Done {
			reconciled.Status = metav1.ConditionTrue
		}
		owned = append(owned, reconciled)
	}
	if !inMachineDeployment(m.machine) {
		upToDate := metav1.Condition{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue, Reason: clusterv1.UpToDateReason}
		if !m.upToDate() {
			upToDate.Status, upToDate.Reason, upToDate.Message = metav1.ConditionFalse, clusterv1.NotUpToDateReason, "* "+m.decision.Message
		}
		owned = append(owned, upToDate)
	}
	errs = append(errs, patch.Conditions(ctx, r.Client, m.machine, fieldOwner, owned...), r.updateRemediation(ctx, m.machine))
	return kerrors.NewAggregate(errs)
}

// upToDate reports whether the machine has applied the wanted plan.
func (m *machine) upToDate() bool {
	return m.secret != nil && m.state.Change == rollout.ChangeNone && m.state.Progress == rollout.ProgressApplied
}

// upToDateKnown reports whether it is known which machines have applied the wanted plans: these were rendered, or none has applied any.
func (s *scope) upToDateKnown() bool {
	return !s.unrendered || !slices.ContainsFunc(s.controlPlaneMachines(),
		func(m *machine) bool { return m.state.Progress == rollout.ProgressApplied })
}

// setReplicas counts the control plane's Machines, as Cluster API's contract for control planes asks for. A reconcile that could not read
// them, or did not because of a deletion, leaves the last count, and one that has not rendered their plans that of those up to date.
func setReplicas(s *scope) {
	status := &s.controlPlane.Status
	status.Selector = clusterv1.ClusterNameLabel + "=" + s.clusterName() + "," + clusterv1.MachineControlPlaneLabel
	if !s.loaded {
		return
	}
	machines := s.controlPlaneMachines()
	count := func(is func(*machine) bool) *int32 { return new(int32(len(namesOf(machines, is)))) }
	status.Replicas = new(int32(len(machines)))
	status.ReadyReplicas = count(func(m *machine) bool { return conditions.IsTrue(m.machine, clusterv1.ReadyCondition) })
	status.AvailableReplicas = count(func(m *machine) bool { return conditions.IsTrue(m.machine, clusterv1.AvailableCondition) })
	if s.upToDateKnown() {
		status.UpToDateReplicas = count(func(m *machine) bool { return !m.state.Deleting && m.upToDate() })
	}
	versions := map[string]int32{}
	for _, m := range machines {
		if m.state.Version != "" {
			versions[m.state.Version]++
		}
	}
	status.Versions, status.Version = nil, ""
	for _, v := range slices.SortedFunc(maps.Keys(versions), compareVersions) {
		status.Versions = append(status.Versions, clusterv1.StatusVersion{Version: v, Replicas: versions[v]})
	}
	if len(status.Versions) > 0 {
		status.Version = status.Versions[0].Version // the lowest, says the contract
	}
}

// compareVersions compares semantic versions. Those that differ only in their build metadata end in a number: +rke2r9 is before +rke2r10.
func compareVersions(a, b string) int {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	if errA != nil || errB != nil {
		return strings.Compare(a, b)
	}
	order, _ := va.Compare(vb.String())
	return cmp.Or(order, cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// setContractConditions sets the conditions that Cluster API's contract for control planes names. A reconcile that could not read the
// Machines leaves them.
func setContractConditions(s *scope) {
	if !s.loaded {
		return
	}
	all := s.controlPlaneMachines()
	remaining := slices.DeleteFunc(slices.Clone(all), func(m *machine) bool { return m.state.Deleting })
	isJoining := func(m *machine) bool { return m.state.JoinURL == "" && !m.state.Joinable() }
	// A health check marks any Machine; those of MachineSets alone are replaced.
	remediated := namesOf(all, func(m *machine) bool {
		return inMachineSet(m.machine) && conditions.IsFalse(m.machine, clusterv1.MachineOwnerRemediatedCondition)
	})
	deleting := namesOf(all, func(m *machine) bool { return m.state.Deleting })
	joining := namesOf(remaining, isJoining)
	notReady := namesOf(remaining, func(m *machine) bool { return !conditions.IsTrue(m.machine, clusterv1.ReadyCondition) })
	pool := int32(len(namesOf(remaining, func(m *machine) bool { return inMachineDeployment(m.machine) })))
	setAvailable(s, all)
	missing, surplus := "", ""
	if pool < s.poolReplicas {
		missing = fmt.Sprintf("%d of %d control plane Machines of MachineDeployments exist", pool, s.poolReplicas)
	}
	if pool > s.poolReplicas {
		surplus = fmt.Sprintf("%d control plane Machines of MachineDeployments exist, %d are desired", pool, s.poolReplicas)
	}
	setInProgress(s, clusterv1.ScalingUpCondition, clusterv1.ScalingUpReason, clusterv1.NotScalingUpReason, doing("Adding", joining), missing)
	setInProgress(s, clusterv1.ScalingDownCondition, clusterv1.ScalingDownReason, clusterv1.NotScalingDownReason,
		doing("Removing", deleting), surplus)
	setInProgress(s, clusterv1.RemediatingCondition, clusterv1.RemediatingReason, clusterv1.NotRemediatingReason,
		doing("Remediating", remediated))
	setForAll(s, clusterv1.MachinesReadyCondition, clusterv1.ReadyReason, clusterv1.NotReadyReason, "Not ready: ", notReady)
	if !s.upToDateKnown() {
		return
	}
	updating := namesOf(remaining, func(m *machine) bool { return !isJoining(m) && !m.upToDate() })
	notUpToDate := namesOf(remaining, func(m *machine) bool { return !m.upToDate() })
	setInProgress(s, clusterv1.RollingOutCondition, clusterv1.RollingOutReason, clusterv1.NotRollingOutReason, doing("Changing", updating))
	setForAll(s, clusterv1.MachinesUpToDateCondition, clusterv1.UpToDateReason, clusterv1.NotUpToDateReason, "Not up to date: ", notUpToDate)
}

// setAvailable says whether a control plane machine serves the Kubernetes API. Where the cluster was not asked for its Nodes, nothing new
// is known. Nor is it where a hub that was just started has not reached a cluster yet that did not answer before: what its machines have
// reported may be older than that.
func setAvailable(s *scope, machines []*machine) {
	down := conditions.GetReason(s.controlPlane, clusterv1.AvailableCondition) == clusterv1.ConnectionDownReason
	if isInitialized(s.controlPlane) && (s.unasked || s.neverReached && down) {
		return
	}
	serving := namesOf(machines, func(m *machine) bool { return m.servesAPI() && !m.state.Node.Unready() })
	available := metav1.Condition{Type: clusterv1.AvailableCondition, Status: metav1.ConditionTrue, Reason: clusterv1.AvailableReason}
	switch {
	case !isInitialized(s.controlPlane):
		available.Status, available.Reason = metav1.ConditionFalse, clusterv1.NotAvailableReason
		available.Message = "Control plane not yet initialized"
	case !s.unreachableSince.IsZero():
		available.Status, available.Reason = metav1.ConditionUnknown, clusterv1.ConnectionDownReason
		available.Message = "The cluster's API has not answered since " + s.unreachableSince.UTC().Format("2006-01-02 15:04:05 MST")
	case len(serving) == 0 && !s.stillAvailable(machines):
		available.Status, available.Reason = metav1.ConditionFalse, clusterv1.NotAvailableReason
		available.Message = "No control plane node is known to serve the Kubernetes API"
	}
	conditions.Set(s.controlPlane, available)
}

// stillAvailable reports whether the control plane was available and one of its machines may still serve the API, and has it looked at
// again when that no longer counts.
func (s *scope) stillAvailable(machines []*machine) bool {
	if !conditions.IsTrue(s.controlPlane, clusterv1.AvailableCondition) {
		return false
	}
	longest := time.Duration(0)
	for _, m := range machines {
		longest = max(longest, m.mayServeAPI(s.now))
	}
	s.requeue(longest)
	return longest > 0
}

// namesOf are the names of the machines for which is returns true.
func namesOf(machines []*machine, is func(*machine) bool) (names []string) {
	for _, m := range machines {
		if is(m) {
			names = append(names, m.machine.Name)
		}
	}
	return names
}

// doing is the message of something that is done to machines; empty for none.
func doing(what string, names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return what + " 1 control plane node: " + names[0]
	}
	return fmt.Sprintf("%s %d control plane nodes: %s", what, len(names), message.JoinNames(names, maxNames))
}

// setInProgress sets a condition that is true while any of the messages is not empty.
func setInProgress(s *scope, conditionType, reason, notReason string, messages ...string) {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: notReason}
	if messages = slices.DeleteFunc(messages, func(m string) bool { return m == "" }); len(messages) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, strings.Join(messages, "; ")
	}
	conditions.Set(s.controlPlane, c)
}

// setForAll sets a condition that is true when it holds for all control plane machines; not are those for which it does not.
func setForAll(s *scope, conditionType, reason, notReason, prefix string, not []string) {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason}
	switch {
	case len(s.controlPlaneMachines()) == 0:
		c.Reason = clusterv1.NoReplicasReason
	case len(not) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, notReason, prefix+message.JoinNames(not, maxNames)
	}
	conditions.Set(s.controlPlane, c)
}

func setDeleting(s *scope) {
	c := metav1.Condition{Type: clusterv1.DeletingCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotDeletingReason}
	if !s.controlPlane.DeletionTimestamp.IsZero() {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, clusterv1.DeletingReason, s.deleting
	}
	conditions.Set(s.controlPlane, c)
}
