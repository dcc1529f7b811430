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
}

// problem is why an operation cannot begin; the zero value for none.
type problem struct {
	reason, text string
	// fatal ends the operation; else it waits.
	fatal bool
}

// step is a part of an operation in which machines do one task.
type step struct {
	// name is the value of status.step.
	name string
	task TaskName
	// machines are the names of those that take part; a step without any is left out.
	machines func(Inputs) []string
	// timeout is how long it may take until the next machine has ended.
	timeout time.Duration
	// title begins the message of a failure, "Saving the snapshot"; doing ends that of a wait, "save the snapshot".
	title, doing string
	// inTurn is set where the task restarts machines: they do it in the order of a rollout, each has to be healthy after it, and a failure
	// stops the others.
	inTurn bool
	// regardless is as in Task.
	regardless bool
}

// Kind returns the kind of an operation, such as "ETCDSnapshotSave".
func Kind(op operationv1.Operation) string { return operationv1.Kind(op) }

func kindOf(op operationv1.Operation) kind {
	switch op := op.(type) {
	case *operationv1.ETCDSnapshotSave:
		return snapshotSave(op)
	case *operationv1.CertificateRotation:
		return certificateRotation(op)
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
