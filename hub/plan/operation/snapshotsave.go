package operation

import (
	"fmt"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/message"
)

// snapshotTimeout is how long a machine may take to save a snapshot. One of the largest etcd, 8 GiB, takes some minutes.
const snapshotTimeout = 15 * time.Minute

func snapshotSave(op *operationv1.ETCDSnapshotSave) kind {
	wanted := func(in Inputs) []string {
		return names(in.Machines, func(m Machine) bool {
			return m.Etcd && (op.Spec.MachineName == "" || m.Name == op.Spec.MachineName)
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
				return problem{reason: ReasonWaitingForMachine, text: "Waiting for a machine with the role etcd"}
			}
			return busy(in, targets)
		},
		steps: []step{{name: operationv1.StepSave, task: TaskSaveSnapshot, machines: wanted, timeout: snapshotTimeout,
			title: "Saving the snapshot", doing: "save the snapshot"}},
		done: func(s *operationv1.Status) string {
			var names []string
			for _, m := range s.Machines {
				names = append(names, m.Name)
			}
			return "The snapshot was saved on " + message.JoinNames(names, maxNames)
		},
	}
}
