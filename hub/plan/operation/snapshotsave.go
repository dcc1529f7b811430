package operation

import (
	"fmt"
	"slices"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

// snapshotTimeout is how long a machine may take to save a snapshot. One of the largest etcd, 8 GiB, takes some minutes.
const snapshotTimeout = 15 * time.Minute

// startPatience is how long a snapshot waits for etcd to start on machines that have just restarted. One that is down for longer does not
// keep the others from saving theirs.
const startPatience = 5 * time.Minute

func snapshotSave(op *operationv1.ETCDSnapshotSave) kind {
	wanted := func(in Inputs) []string {
		return names(in.Machines, func(m Machine) bool {
			if op.Spec.MachineName == "" {
				// A machine that has not joined yet has no data, and may never join.
				return m.Etcd && !m.NeverJoined()
			}
			return m.Etcd && m.Name == op.Spec.MachineName
		})
	}
	return kind{
		begin: func(in Inputs) problem {
			targets := wanted(in)
			switch {
			case len(targets) == 0 && op.Spec.MachineName != "":
				return problem{reason: ReasonMachineNotFound, fatal: true,
					text: fmt.Sprintf("The cluster has no Machine %s with the role etcd", op.Spec.MachineName)}
			case len(targets) == 0:
				return problem{reason: ReasonWaitingForMachine, text: "Waiting for a machine with the role etcd to join the cluster"}
			}
			if p := busy(in, targets); p.reason != "" {
				return p
			}
			return starting(in, targets)
		},
		steps: []step{{name: operationv1.StepSave, task: TaskSaveSnapshot, machines: wanted, timeout: snapshotTimeout,
			title: "Saving the snapshot", doing: "save the snapshot"}},
		done: func(s *operationv1.Status) string {
			return "The snapshot was saved on " + joinMachines(s)
		},
	}
}

// starting is a problem while any of the machines was not healthy with its plan yet: nothing can be saved or deleted before etcd has
// started.
func starting(in Inputs, targets []string) problem {
	waiting := names(in.Machines, func(m Machine) bool {
		return slices.Contains(targets, m.Name) && m.Progress == rollout.ProgressApplied && !m.Working()
	})
	if len(waiting) == 0 {
		return problem{}
	}
	return problem{reason: ReasonWaitingForMachine, text: "Waiting for " + message.JoinNames(waiting, maxNames) + " to be healthy",
		patience: startPatience}
}
