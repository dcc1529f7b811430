// Package operation decides how an operation on a cluster goes on: which machines run an instruction of it now, and what its status is. It
// is pure: values in, values out, no client, no clock. A hub that was killed goes on from the status that was written last.
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
	"github.com/drover-dev/drover/hub/util/message"
)

const (
	// startTimeout is how long an operation may wait before it begins.
	startTimeout = time.Hour
	// machineTimeout is how long the machines may take. A snapshot of the largest etcd, 8 GiB, takes some minutes.
	machineTimeout = 15 * time.Minute
)

// The reasons of the condition Succeeded, beyond the phases.
const (
	// ReasonWaitingForCluster is that of an operation whose cluster has not been started.
	ReasonWaitingForCluster = "WaitingForCluster"
	// ReasonWaitingForMachine is that of an operation that waits for machines to exist, or to apply their plan.
	ReasonWaitingForMachine = "WaitingForMachine"
	// ReasonMachineNotFound is that of an operation for a machine that does not exist.
	ReasonMachineNotFound = "MachineNotFound"
	// ReasonTimedOut is that of an operation that has waited too long to begin.
	ReasonTimedOut = "TimedOut"
	// ReasonMachineFailed is that of an operation that failed on a machine.
	ReasonMachineFailed = "MachineFailed"
	// ReasonClusterRefInvalid is that of an operation whose reference leads to another namespace.
	ReasonClusterRefInvalid = "ClusterRefInvalid"
)

// Machine is a machine of the cluster.
type Machine struct {
	rollout.Machine
	// Has is set where the delivered plan has the operation's instruction.
	Has bool
}

// Inputs are what a decision is made on.
type Inputs struct {
	// Now is the time.
	Now time.Time
	// Bootstrapped is set once the cluster has been started.
	Bootstrapped bool
	// Machines are all machines of the cluster.
	Machines []Machine
}

// DecideSnapshotSave sets the status of an operation that has not ended, and returns the machines whose plan has to have its instruction,
// and when to decide again; 0 for when something changes.
func DecideSnapshotSave(op *operationv1.ETCDSnapshotSave, in Inputs) (run []string, again time.Duration) {
	d := decision{op: op, in: in}
	op.Status.ObservedGeneration = op.Generation
	switch {
	case op.Spec.Cancel:
		d.end(operationv1.PhaseCanceled, string(operationv1.PhaseCanceled), "The operation was canceled; what a machine had begun goes on")
	case op.Status.Phase != operationv1.PhaseInProgress:
		d.start()
	}
	if op.Status.Phase == operationv1.PhaseInProgress {
		d.follow()
	}
	d.pause()
	return d.run, d.again
}

// Refuse ends an operation that cannot be done.
func Refuse(op *operationv1.ETCDSnapshotSave, now time.Time, why string) {
	d := decision{op: op, in: Inputs{Now: now}}
	op.Status.ObservedGeneration = op.Generation
	d.end(operationv1.PhaseFailed, ReasonClusterRefInvalid, why)
}

type decision struct {
	op    *operationv1.ETCDSnapshotSave
	in    Inputs
	run   []string
	again time.Duration
}

// start begins the operation, or says what it waits for.
func (d *decision) start() {
	targets := slices.DeleteFunc(slices.Clone(d.in.Machines), func(m Machine) bool {
		return !m.Etcd || m.Deleting || d.op.Spec.MachineName != "" && m.Name != d.op.Spec.MachineName
	})
	var busy []string
	for _, m := range targets {
		underway := m.Progress == rollout.ProgressNone || m.Progress == rollout.ProgressPending || m.Progress == rollout.ProgressApplying
		if !m.HasPlanSecret || underway {
			busy = append(busy, m.Name)
		}
	}
	reason, text := "", ""
	switch {
	case !d.in.Bootstrapped:
		reason, text = ReasonWaitingForCluster, "Waiting for the cluster to be started"
	case len(targets) == 0 && d.op.Spec.MachineName != "":
		d.end(operationv1.PhaseFailed, ReasonMachineNotFound,
			fmt.Sprintf("The cluster has no Machine %s with the role etcd", d.op.Spec.MachineName))
		return
	case len(targets) == 0:
		reason, text = ReasonWaitingForMachine, "Waiting for a machine with the role etcd"
	case len(busy) > 0:
		reason, text = ReasonWaitingForMachine, "Waiting for "+message.JoinNames(busy, maxNames)+" to apply the plan"
	case d.op.Spec.Paused:
		reason, text = operationv1.PausedCondition, "Waiting for spec.paused to become false"
	}
	if reason != "" {
		left := startTimeout - d.in.Now.Sub(d.op.CreationTimestamp.Time)
		if left <= 0 && !d.op.Spec.Paused {
			d.end(operationv1.PhaseFailed, ReasonTimedOut, fmt.Sprintf("Not begun within %s: %s", startTimeout, text))
			return
		}
		d.again = left
		d.set(operationv1.PhasePending, metav1.ConditionUnknown, reason, text)
		return
	}
	for _, m := range targets {
		d.op.Status.Machines = append(d.op.Status.Machines, operationv1.MachineStatus{Name: m.Name, Phase: operationv1.PhaseInProgress})
	}
	d.op.Status.Step = operationv1.StepSave
	d.set(operationv1.PhaseInProgress, metav1.ConditionUnknown, string(operationv1.PhaseInProgress), "")
}

const maxNames = 5

// follow reads how far the machines are.
func (d *decision) follow() {
	left := machineTimeout - d.in.Now.Sub(d.op.Status.LastUpdated.Time)
	var running, failed []string
	for i := range d.op.Status.Machines {
		m := &d.op.Status.Machines[i]
		if m.Phase == operationv1.PhaseInProgress {
			m.Phase, m.Message = d.progress(m.Name, left)
		}
		switch m.Phase {
		case operationv1.PhaseInProgress:
			running = append(running, m.Name)
		case operationv1.PhaseFailed:
			failed = append(failed, m.Name)
		}
	}
	switch {
	case len(running) > 0:
		d.run, d.again = running, left
		d.set(operationv1.PhaseInProgress, metav1.ConditionUnknown, string(operationv1.PhaseInProgress),
			"Waiting for "+message.JoinNames(running, maxNames)+" to save the snapshot")
	case len(failed) > 0:
		d.end(operationv1.PhaseFailed, ReasonMachineFailed, "Saving the snapshot failed on "+message.JoinNames(failed, maxNames)+
			"; status.machines says why")
	default:
		d.end(operationv1.PhaseSucceeded, string(operationv1.PhaseSucceeded), "The snapshot was saved on "+d.saved())
	}
}

func (d *decision) saved() string {
	var names []string
	for _, m := range d.op.Status.Machines {
		names = append(names, m.Name)
	}
	return message.JoinNames(names, maxNames)
}

// progress is how far a machine is that has not ended.
func (d *decision) progress(name string, left time.Duration) (operationv1.Phase, string) {
	i := slices.IndexFunc(d.in.Machines, func(m Machine) bool { return m.Name == name })
	switch {
	case i < 0 || d.in.Machines[i].Deleting:
		return operationv1.PhaseFailed, "The Machine was deleted"
	case d.in.Machines[i].Has && d.in.Machines[i].Progress == rollout.ProgressApplied:
		return operationv1.PhaseSucceeded, ""
	case d.in.Machines[i].Has && d.in.Machines[i].Progress == rollout.ProgressFailed:
		return operationv1.PhaseFailed, strings.TrimSpace("The plan failed. " + d.in.Machines[i].Failure)
	case d.in.Machines[i].Has && d.in.Machines[i].Progress == rollout.ProgressCanceled:
		return operationv1.PhaseFailed, "Somebody has canceled the plan"
	case left <= 0:
		return operationv1.PhaseFailed, fmt.Sprintf("The machine has not answered within %s", machineTimeout)
	}
	return operationv1.PhaseInProgress, ""
}

func (d *decision) end(phase operationv1.Phase, reason, text string) {
	status := metav1.ConditionFalse
	if phase == operationv1.PhaseSucceeded {
		status = metav1.ConditionTrue
	}
	d.op.Status.Step = ""
	d.set(phase, status, reason, text)
	at := metav1.NewTime(d.in.Now)
	d.op.Status.TerminatedAt = &at
	d.run, d.again = nil, 0
}

func (d *decision) set(phase operationv1.Phase, status metav1.ConditionStatus, reason, text string) {
	if d.op.Status.Phase != phase || d.op.Status.LastUpdated == nil {
		at := metav1.NewTime(d.in.Now)
		d.op.Status.Phase, d.op.Status.LastUpdated = phase, &at
	}
	conditions.Set(d.op, metav1.Condition{Type: operationv1.SucceededCondition, Status: status, Reason: reason, Message: text})
}

func (d *decision) pause() {
	c := metav1.Condition{Type: operationv1.PausedCondition, Status: metav1.ConditionFalse, Reason: "NotPaused"}
	if d.op.Spec.Paused && !d.op.Status.Phase.Ended() {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Paused", "spec.paused is true"
	}
	conditions.Set(d.op, c)
}
