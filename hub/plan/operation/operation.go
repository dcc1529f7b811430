// Package operation decides how an operation on a cluster goes on: which machines do what for it now, and what its status is. It is pure:
// values in, values out, no client, no clock. A hub that was killed goes on from the status that was written last.
//
// An operation is a sequence of steps (kinds.go). In each, machines do a task, which is a part of their plan (hub/plan/render); the next
// begins when all have done it.
package operation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

const (
	// startTimeout is how long an operation may wait for the same thing before it begins.
	startTimeout = time.Hour
	// specPatience is how long an operation waits before the specification of the Cluster has it refused: users change that first, or at the
	// same time, and what they write takes a moment to the RKEControlPlane.
	specPatience = time.Minute
)

// The reasons of the condition Succeeded, beyond the phases.
const (
	// ReasonWaitingForCluster is that of an operation whose cluster has not been started.
	ReasonWaitingForCluster = "WaitingForCluster"
	// ReasonWaitingForMachine is that of an operation that waits for machines to exist, or to apply their plan.
	ReasonWaitingForMachine = "WaitingForMachine"
	// ReasonWaitingForSnapshot is that of a restore of a snapshot whose file the cluster may list again.
	ReasonWaitingForSnapshot = "WaitingForSnapshot"
	// ReasonSnapshotInvalid is that of a restore of a snapshot that cannot be restored, and of a deletion of one that cannot be deleted.
	ReasonSnapshotInvalid = "SnapshotInvalid"
	// ReasonSnapshotInUse is that of a deletion of a snapshot that is to be restored.
	ReasonSnapshotInUse = "SnapshotInUse"
	// ReasonMachineNotFound is that of an operation for a machine that does not exist.
	ReasonMachineNotFound = "MachineNotFound"
	// ReasonServiceNotFound is that of an operation for a service that the cluster's distribution does not have.
	ReasonServiceNotFound = "ServiceNotFound"
	// ReasonTimedOut is that of an operation that has waited too long to begin, for what the hub does in a step, or for a hub that knows it.
	ReasonTimedOut = "TimedOut"
	// ReasonMachineFailed is that of an operation that failed on a machine.
	ReasonMachineFailed = "MachineFailed"
	// ReasonWaitingForOperation is that of an operation that waits for another one of the cluster to end.
	ReasonWaitingForOperation = rollout.ReasonWaitingForOperation
	// ReasonSnapshotNotRestored is that of an operation that would restart servers with the configuration of a snapshot whose data was not
	// restored.
	ReasonSnapshotNotRestored = "SnapshotNotRestored"
	// ReasonWaitingForHub is that of an operation in a step of another version of the hub.
	ReasonWaitingForHub = "WaitingForHub"
	// ReasonHubRestored is that of an operation in a backup that the hub was restored from.
	ReasonHubRestored = rollout.ReasonHubRestored
	// ReasonClusterPaused is that of an operation whose Cluster is paused.
	ReasonClusterPaused = "ClusterPaused"
	// ReasonClusterRefInvalid is that of an operation whose reference leads to another namespace.
	ReasonClusterRefInvalid = "ClusterRefInvalid"
)

// Machine is a machine of the cluster.
type Machine struct {
	rollout.Machine
	// Has is set where the delivered plan has the task of the step in the operation's status.
	Has bool
	// Windows is set on a machine that runs Windows.
	Windows bool
	// CertificatesEnd is when the first of the machine's certificates ends, as its agent has last reported; zero if that is not known. Where
	// the hub does not write the configuration, others may end before.
	CertificatesEnd time.Time
}

// Inputs are what a decision is made on.
type Inputs struct {
	// Now is the time. Since is from when on the hub has followed the cluster without a break, which a pause or a restart is: machines have
	// their time from then on.
	Now, Since time.Time
	// Restored is when the hub was restored from a backup; zero if it was not. What became of operations from before is not known.
	Restored time.Time
	// Bootstrapped is set once the cluster has been started.
	Bootstrapped bool
	// Stopped is set while machines are stopped for a restore that did not end. Only another restore begins then.
	Stopped bool
	// TokenPending is set while a server may have been given a token that is not the cluster's yet. Other operations that restart servers
	// wait then: which token the data is encrypted with is not known.
	TokenPending bool
	// Unrestored is set while the Cluster has the configuration of a snapshot whose data was not restored. Operations that would restart
	// servers with that configuration wait then.
	Unrestored bool
	// Runtime is that of the cluster: "k3s" or "rke2".
	Runtime string
	// UnmanagedConfig is set where the hub does not write the configuration of machines.
	UnmanagedConfig bool
	// Machines are all machines of the cluster.
	Machines []Machine
	// Snapshot is what an ETCDSnapshotRestore that has not begun restores.
	Snapshot Snapshot
	// Deletion is what an ETCDSnapshotDelete deletes, as it is now.
	Deletion Deletion
	// Connected is set while the cluster's Nodes are known.
	Connected bool
	// StrayNodes are those of them without a Machine.
	StrayNodes []StrayNode
}

// StrayNode is a Node that belongs to no Machine, or to one with etcd that is being deleted.
type StrayNode struct {
	// Name of the Node.
	Name string
	// Lost is set where its kubelet does not report.
	Lost bool
}

// Task is what a machine does for an operation. hub/plan/render knows its instructions.
type Task struct {
	// Step is the step of the operation. A machine does a task of the same name again in another step.
	Step string
	// Name of the task.
	Name TaskName
	// Regardless is set where the task is delivered whatever the rules of a rollout say; else they decide when a machine may restart.
	Regardless bool
	// Rendered is set where the task is a part of the plan that the specification asks for, else it is one of the delivered plan.
	Rendered bool
	// Apart is set where the task is done without the installation and whatever else the delivered plan runs.
	Apart bool
}

// TaskName is the name of a task.
type TaskName string

// The tasks.
const (
	// TaskSaveSnapshot saves a snapshot of etcd.
	TaskSaveSnapshot TaskName = "etcd-snapshot-save"
	// TaskDeleteSnapshot deletes the file of a snapshot of etcd.
	TaskDeleteSnapshot TaskName = "etcd-snapshot-delete"
	// TaskRotateCertificates replaces certificates and restarts the distribution.
	TaskRotateCertificates TaskName = "certificate-rotation"
	// TaskPing does nothing: it shows that the agent answers.
	TaskPing TaskName = "ping"
	// TaskCheckSnapshot checks whether a snapshot can be restored on the machine, and changes nothing.
	TaskCheckSnapshot TaskName = "etcd-snapshot-check"
	// TaskStop stops the distribution and its containers, also for the next start of the machine.
	TaskStop TaskName = "stop"
	// TaskRestoreSnapshot makes etcd a cluster of the machine alone with the data of a snapshot, and starts nothing.
	TaskRestoreSnapshot TaskName = "etcd-snapshot-restore"
	// TaskStart starts a machine that was stopped. A server other than the restored one joins without the data that it has.
	TaskStart TaskName = "start"
)

// Decision is how an operation goes on.
type Decision struct {
	// Tasks are what machines do now, by the Machine's name. Others do nothing for the operation.
	Tasks map[string]Task
	// LeftOut are the machines, by name, that the operation goes on without.
	LeftOut map[string]bool
	// KeepTasks is set where machines that have the task of the step keep it, though this hub does not know which it is.
	KeepTasks bool
	// DeleteNodes are the names of Nodes that the hub deletes now.
	DeleteNodes []string
	// DeleteSnapshot is set where the hub deletes the ETCDSnapshot of an ETCDSnapshotDelete now.
	DeleteSnapshot bool
	// Again is when to decide again; 0 for when something changes.
	Again time.Duration
}

// Decide sets the status of an operation that has not ended, and returns what machines do for it.
func Decide(op operationv1.Operation, in Inputs) Decision {
	return newEngine(op, in).decide()
}

func (e *engine) decide() Decision {
	e.status.ObservedGeneration = e.op.GetGeneration()
	e.resume()
	switch {
	case e.spec.Cancel && !e.mustEndStep():
		e.end(operationv1.PhaseCanceled, string(operationv1.PhaseCanceled), "The operation was canceled; what a machine had begun goes on")
	case e.op.GetCreationTimestamp().Time.Before(e.in.Restored):
		e.endOfBackup()
	case e.status.Phase != operationv1.PhaseInProgress:
		e.start()
	}
	if e.status.Phase == operationv1.PhaseInProgress {
		e.follow()
	}
	e.pause()
	return e.out
}

// RefuseOtherNamespace ends an operation whose reference names a Cluster in another namespace, and returns whether it does.
func RefuseOtherNamespace(op operationv1.Operation, now time.Time) bool {
	ref := op.CommonSpec().ClusterRef
	if ref.Namespace == "" || ref.Namespace == op.GetNamespace() {
		return false
	}
	e := newEngine(op, Inputs{Now: now})
	e.status.ObservedGeneration = op.GetGeneration()
	e.end(operationv1.PhaseFailed, ReasonClusterRefInvalid, fmt.Sprintf("spec.clusterRef names %s %s (%s) in the namespace %s; an operation "+
		"is in the namespace of its Cluster, so spec.clusterRef.namespace must be empty or %s", ref.Kind, ref.Name, ref.APIVersion,
		ref.Namespace, op.GetNamespace()))
	return true
}

// Holds names an operation that other changes of machines wait for: one that is in progress, and a restore also before it begins. After a
// TokenRotation that may have given a server a token that is not the cluster's, it is the next one: a server that restarts with the other
// token does not start. Empty for none.
func Holds(op operationv1.Operation, tokenPending bool) string {
	switch {
	case op != nil && Precedence(op) > 0:
		return operationv1.Kind(op) + " " + op.GetName()
	case tokenPending:
		return "another TokenRotation, which has to be created: the last one did not end, and a server may have the new token,"
	}
	return ""
}

// Precedence orders operations that have not ended: the one in progress goes on, also while it is paused, and a restore begins before
// others. One that was paused before it began comes after all others.
func Precedence(op operationv1.Operation) int {
	_, restore := op.(*operationv1.ETCDSnapshotRestore)
	switch {
	case op.CommonStatus().Phase == operationv1.PhaseInProgress:
		return 2
	case op.CommonSpec().Paused:
		return -1
	case restore && !op.CommonStatus().Phase.Ended():
		return 1
	}
	return 0
}

// Next is the operation that is carried out, of those of a cluster that have not ended in the order of their creation: the one in progress,
// or else the one that begins next. Nil for none.
func Next(waiting []operationv1.Operation) (next operationv1.Operation) {
	for _, op := range waiting {
		if next == nil || Precedence(op) > Precedence(next) {
			next = op
		}
	}
	return next
}

// Queue sets the status of an operation that has not begun, while another one of the cluster comes before it.
func Queue(op operationv1.Operation, now time.Time) {
	hold(op, now, ReasonWaitingForOperation, "Waiting for other operations on the cluster to end")
}

// Suspend sets the status of an operation that has not ended, while its Cluster is paused. One in progress keeps its phase and its step.
func Suspend(op operationv1.Operation, now time.Time) {
	hold(op, now, ReasonClusterPaused, "Waiting for Cluster "+op.CommonSpec().ClusterRef.Name+" not to be paused any more")
}

func hold(op operationv1.Operation, now time.Time, reason, text string) {
	if RefuseOtherNamespace(op, now) {
		return
	}
	e := newEngine(op, Inputs{Now: now})
	e.status.ObservedGeneration = op.GetGeneration()
	switch {
	case e.status.Phase == operationv1.PhaseInProgress:
		e.set(operationv1.PhaseInProgress, metav1.ConditionUnknown, reason, text)
	case e.spec.Cancel:
		e.end(operationv1.PhaseCanceled, string(operationv1.PhaseCanceled), "The operation was canceled before it began")
	default:
		e.set(operationv1.PhasePending, metav1.ConditionUnknown, reason, text)
	}
	e.pause()
}

// InProgress names an operation that is in progress, for messages; empty for one that is not, or for none.
func InProgress(op operationv1.Operation) string {
	if op == nil || op.CommonStatus().Phase != operationv1.PhaseInProgress {
		return ""
	}
	return operationv1.Kind(op) + " " + op.GetName()
}

func (e *engine) end(phase operationv1.Phase, reason, text string) {
	if restore, is := e.op.(*operationv1.ETCDSnapshotRestore); is {
		restore.Status.Unchanged = phase != operationv1.PhaseSucceeded && e.nothingStopped()
	}
	status := metav1.ConditionFalse
	if phase == operationv1.PhaseSucceeded {
		status = metav1.ConditionTrue
	} else if e.kind.advice != nil && e.status.Phase == operationv1.PhaseInProgress {
		text = strings.TrimSpace(strings.TrimSuffix(text, ".") + ". " + e.kind.advice(e.status.Step))
	}
	e.status.Step = ""
	e.set(phase, status, reason, text)
	at := metav1.NewTime(e.in.Now)
	e.status.TerminatedAt = &at
	e.out = Decision{}
}

func (e *engine) set(phase operationv1.Phase, status metav1.ConditionStatus, reason, text string) {
	if e.status.Phase != phase || e.status.LastUpdated == nil {
		e.status.Phase = phase
		e.touch()
	}
	conditions.Set(e.op, metav1.Condition{Type: operationv1.SucceededCondition, Status: status, Reason: reason, Message: text,
		LastTransitionTime: metav1.NewTime(e.in.Now)})
}

// touch begins the time that machines have.
func (e *engine) touch() {
	at := metav1.NewTime(e.in.Now)
	e.status.LastUpdated = &at
}

func (e *engine) pause() {
	c := metav1.Condition{Type: operationv1.PausedCondition, Status: metav1.ConditionFalse, Reason: "NotPaused",
		LastTransitionTime: metav1.NewTime(e.in.Now)}
	if e.spec.Paused && !e.status.Phase.Ended() {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Paused", "spec.paused is true"
	}
	conditions.Set(e.op, c)
}

// start begins the operation, or says what it waits for.
func (e *engine) start() {
	reason, text, patience, again := "", "", time.Duration(0), time.Duration(0)
	if !e.in.Bootstrapped {
		reason, text = ReasonWaitingForCluster, "Waiting for the cluster to be started"
	} else if _, restore := e.op.(*operationv1.ETCDSnapshotRestore); e.in.Stopped && !restore {
		reason, text = ReasonWaitingForCluster, "Waiting for the cluster to be restored: a restore has left machines stopped"
	} else if slices.ContainsFunc(e.kind.steps, func(s step) bool { return s.held(e.in) }) {
		reason, text = ReasonSnapshotNotRestored, "Waiting for the data of a snapshot: the Cluster has the configuration of one that was not "+
			"restored. Restore it with another generation, or set the configuration back and remove spec.rkeConfig.etcdSnapshotRestore"
	} else if e.in.TokenPending && e.kind.restarts {
		reason, text = ReasonWaitingForCluster, "Waiting for another TokenRotation, which has to be created: the last one did not end, and a "+
			"server may have the new token"
	} else if p := e.kind.begin(e.in); p.fatal && (p.patience == 0 || e.waited() >= p.patience) {
		e.end(operationv1.PhaseFailed, p.reason, p.text)
		return
	} else if p.fatal {
		reason, text, patience = ReasonWaitingForCluster, "Waiting for changes of the Cluster to arrive. Without one: "+p.text, p.patience
	} else if p.reason != "" && (p.patience == 0 || e.waited() < p.patience) {
		reason, text, patience, again = p.reason, p.text, p.patience, p.again
	} else if e.spec.Paused {
		reason, text = operationv1.PausedCondition, "Waiting for spec.paused to become false"
	}
	if reason == "" {
		e.set(operationv1.PhaseInProgress, metav1.ConditionUnknown, string(operationv1.PhaseInProgress), "")
		e.begin(0)
		return
	}
	e.wait(reason, text)
	if patience > 0 {
		again = patience - e.waited()
	}
	if again > 0 && !e.status.Phase.Ended() {
		e.out.Again = min(e.out.Again, again)
	}
}

// waited is for how long the operation waits to begin. Its time begins when it is first seen, or its turn has come, or its pause ends, and
// again with a hub that has started: what it waits for may have come meanwhile, and not be known yet.
func (e *engine) waited() time.Duration {
	why := conditions.GetReason(e.op, operationv1.SucceededCondition)
	held := why == ReasonWaitingForOperation || why == ReasonClusterPaused
	if held || e.status.LastUpdated == nil || conditions.IsTrue(e.op, operationv1.PausedCondition) && !e.spec.Paused {
		e.touch()
	}
	since := e.status.LastUpdated.Time
	if e.in.Since.After(since) {
		since = e.in.Since
	}
	return e.in.Now.Sub(since)
}

// wait leaves the operation pending, for a limited time. A change of what it waits for is progress: an upgrade of servers that are drained
// one by one may take many hours.
func (e *engine) wait(reason, text string) {
	if before := conditions.GetMessage(e.op, operationv1.SucceededCondition); before != "" && before != text {
		e.touch()
	}
	left := startTimeout - e.waited()
	if left <= 0 && !e.spec.Paused {
		e.end(operationv1.PhaseFailed, ReasonTimedOut, fmt.Sprintf("Not begun, and no progress for %s: %s", startTimeout, text))
		return
	}
	e.out.Again = left
	e.set(operationv1.PhasePending, metav1.ConditionUnknown, reason, text)
}
