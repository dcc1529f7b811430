package operation

import (
	"fmt"
	"slices"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

// kind is how operations of a kind go.
type kind struct {
	// begin says why the operation cannot begin, or cannot begin yet.
	begin func(Inputs) problem
	// steps in their order.
	steps []step
	// done is the message of an operation that has succeeded.
	done func(*operationv1.Status) string
	// broken says why an operation that is in progress cannot go on whatever its machines do; empty if it can. Nil is never.
	broken func(Inputs) string
	// advice ends the message of an operation that failed or was canceled in a step: what to do. Nil for nothing.
	advice func(step string) string
	// restarts is set where servers restart with the configuration that they have.
	restarts bool
}

// pages is where users find the pages about kinds.
const pages = "https://github.com/drover-dev/drover/blob/main/docs/kinds/"

// problem is why an operation cannot begin; the zero value for none.
type problem struct {
	reason, text string
	// fatal ends the operation, after patience; else it waits.
	fatal bool
	// patience is how long it waits for this, and then begins unless it is fatal; 0 for as long as an operation may wait to begin.
	patience time.Duration
	// again is when it is to be decided again although nothing has changed; 0 for never.
	again time.Duration
}

// step is a part of an operation in which machines do tasks, or in which the hub does something.
type step struct {
	// name is the value of status.step.
	name string
	// task of all machines, or tasks of each.
	task  TaskName
	tasks func(Machine) TaskName
	// machines are the names of those that take part; a step without any is left out.
	machines func(Inputs) []string
	// hub is set for a step without machines: it returns what is waited for, and what the hub does meanwhile; empty once the step is done.
	hub func(in Inputs, since time.Duration) (wait string, do Decision)
	// timeout is how long it may take until the next machine has ended.
	timeout time.Duration
	// title begins the message of a failure, "Saving the snapshot"; doing ends that of a wait, "save the snapshot".
	title, doing string
	// inTurn is set where the task restarts machines: they do it in the order of a rollout, each has to be healthy after it, and a failure
	// stops the others.
	inTurn bool
	// healthy is set where each machine has to be healthy after the task.
	healthy bool
	// joinable is set where others have to be able to join each machine after the task.
	joinable bool
	// order returns the place of a machine: one begins when all before it have ended, and those of the same place begin together. Nil is the
	// same place for all. The order of texts counts.
	order func(Machine) string
	// optional returns how long the operation waits for a machine whose failure does not end it; 0 for one whose failure does. Nil is 0.
	optional func(Machine) time.Duration
	// regardless, rendered and apart are as in Task.
	regardless, rendered, apart bool
	// byLeader is set where one machine does the step for all; it is written to status.leader.
	byLeader bool
	// instead names the machine that does the task of one that was deleted; begun is set where that one may have begun. It returns "" where
	// no other may: the operation then fails, as it does in a step without this function.
	instead func(in Inputs, begun bool) string
	// whole is set where the step goes on when the operation is canceled, once a machine has begun.
	whole bool
	// skipDeleted is set where nothing is left to do on a machine that was deleted.
	skipDeleted bool
	// lost reports whether the operation goes on without a machine if that stays so for lostTimeout, while no other is at work. Nil is never.
	lost func(Machine) bool
}

// held reports whether the step would restart machines with the configuration of a snapshot whose data was not restored. A restore does.
func (s step) held(in Inputs) bool { return in.Unrestored && s.rendered && !s.regardless }

func (s step) taskOf(m Machine) TaskName {
	if s.tasks != nil {
		return s.tasks(m)
	}
	return s.task
}

func kindOf(op operationv1.Operation) kind {
	switch op := op.(type) {
	case *operationv1.ETCDSnapshotSave:
		return snapshotSave(op)
	case *operationv1.ETCDSnapshotDelete:
		return snapshotDelete(op)
	case *operationv1.CertificateRotation:
		return certificateRotation(op)
	case *operationv1.ETCDSnapshotRestore:
		return snapshotRestore(op)
	case *operationv1.EncryptionKeyRotation:
		return encryptionKeyRotation(op)
	case *operationv1.TokenRotation:
		return tokenRotation(op)
	}
	panic(fmt.Sprintf("operation: no steps are known for a %T", op))
}

// names returns the names of the machines for which a function is true, sorted. Machines in deletion take part in nothing.
func names(machines []Machine, want func(Machine) bool) (names []string) {
	for _, m := range machines {
		if !m.Deleting && want(m) {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}

// joinMachines names the machines of a step that has succeeded, without those that were deleted, which have a message.
func joinMachines(s *operationv1.Status) string {
	var names []string
	for _, m := range s.Machines {
		if m.Message == "" {
			names = append(names, m.Name)
		}
	}
	return message.JoinNames(names, maxNames)
}

// busy is a problem while any of the machines has not applied its plan, which the tasks are added to.
func busy(in Inputs, targets []string) problem {
	waiting := names(in.Machines, func(m Machine) bool {
		underway := m.Progress == rollout.ProgressNone || m.Progress == rollout.ProgressPending || m.Progress == rollout.ProgressApplying
		return slices.Contains(targets, m.Name) && (!m.HasPlanSecret || underway)
	})
	if len(waiting) == 0 {
		return problem{}
	}
	return problem{reason: ReasonWaitingForMachine, text: "Waiting for " + message.JoinNames(waiting, maxNames) + " to apply the plan"}
}

// unrenderable is a problem while no plan can be rendered for a machine that has a plan, is a server, or is the target of a restore: the
// restore would stop it, and could not start it.
func unrenderable(in Inputs, target string) problem {
	affected := names(in.Machines, func(m Machine) bool {
		return m.Problem != "" && !m.Windows && (m.Name == target || m.Server() || m.Progress != rollout.ProgressNone)
	})
	if len(affected) == 0 {
		return problem{}
	}
	why := in.Machines[slices.IndexFunc(in.Machines, func(m Machine) bool { return m.Name == affected[0] })].Problem
	return problem{reason: ReasonWaitingForMachine, text: fmt.Sprintf("Waiting for the plan of %s, without which a restore could not start "+
		"the machine: %s", message.JoinNames(affected, maxNames), why)}
}
