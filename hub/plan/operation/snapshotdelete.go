package operation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

const (
	// DeleteTimeout is how long a machine may take to delete a snapshot. A bucket may take minutes to answer each of several requests.
	DeleteTimeout = 15 * time.Minute
	// cleanupTimeout is how long the hub waits until the cluster does not list the file, and listInterval how often it looks.
	cleanupTimeout, listInterval = 10 * time.Minute, 2 * time.Second
)

// Deletion is the snapshot that an ETCDSnapshotDelete names.
type Deletion struct {
	// Found is set where there is such an ETCDSnapshot.
	Found bool
	// Problem says why it must not be deleted, as a sentence without an end; empty if it may.
	Problem string
	// Followed is set for an ETCDSnapshot that follows what the cluster lists; others are written by users.
	Followed bool
	// Listed is set where the cluster lists the file, and the Node that has it is there.
	Listed bool
	// Unreachable says why no machine of the cluster could delete the file, as a sentence without an end; empty if one could.
	Unreachable string
	// InBucket is set for a file in S3, which any machine with etcd can delete.
	InBucket bool
	// Machine is the name of the Machine that has the file, or whose file was copied to S3; empty where that is not known.
	Machine string
	// Node is the name of the Node that has the file, for messages.
	Node string
	// File is what is deleted.
	File operationv1.DeletedSnapshot
}

// deletion is an ETCDSnapshotDelete.
type deletion struct {
	*operationv1.ETCDSnapshotDelete
}

func snapshotDelete(op *operationv1.ETCDSnapshotDelete) kind {
	d := deletion{op}
	return kind{
		begin:  d.begin,
		done:   d.done,
		advice: d.advice,
		steps: []step{
			// What the status says of the file is known from the second decision on; in the first, no machine is deleted.
			{name: operationv1.StepDelete, task: TaskDeleteSnapshot, machines: d.target, timeout: DeleteTimeout, instead: d.instead,
				skipDeleted: !d.inBucket(), title: "Deleting the snapshot", doing: "delete the snapshot"},
			{name: operationv1.StepCleanup, hub: d.cleanUp, timeout: cleanupTimeout, title: "Deleting the ETCDSnapshot"},
		},
	}
}

// RefuseInUse ends an ETCDSnapshotDelete that has not begun, and whose snapshot is named by a restore that has not ended. It returns
// whether it does. A restore that fails may be repeated with the same snapshot, so that the deletion does not wait for its end.
func RefuseInUse(op operationv1.Operation, notEnded []operationv1.Operation, now time.Time) bool {
	d, is := op.(*operationv1.ETCDSnapshotDelete)
	if !is || d.Spec.Cancel || d.Status.Phase == operationv1.PhaseInProgress || d.Status.Phase.Ended() {
		return false
	}
	for _, other := range notEnded {
		restore, is := other.(*operationv1.ETCDSnapshotRestore)
		if !is || restore.Spec.Args.Name != d.Spec.Args.Name {
			continue
		}
		e := newEngine(op, Inputs{Now: now})
		e.status.ObservedGeneration = op.GetGeneration()
		e.end(operationv1.PhaseFailed, ReasonSnapshotInUse, fmt.Sprintf("ETCDSnapshotRestore %s restores ETCDSnapshot %s, and has not ended. "+
			"Delete the snapshot when the cluster is restored", restore.Name, d.Spec.Args.Name))
		e.pause()
		return true
	}
	return false
}

// begin records the machine and the file, which do not change later.
func (d deletion) begin(in Inputs) problem {
	fail := func(reason, format string, args ...any) problem {
		return problem{reason: reason, fatal: true, text: fmt.Sprintf(format, args...)}
	}
	of, name := in.Deletion, d.Spec.Args.Name
	switch {
	case !of.Found:
		return fail(ReasonSnapshotInvalid, "ETCDSnapshot %s does not exist", name)
	case of.Problem != "":
		return fail(ReasonSnapshotInvalid, "%s", of.Problem)
	case of.Unreachable != "" && of.Listed:
		p := fail(ReasonSnapshotInvalid, "The file of ETCDSnapshot %s cannot be deleted: %s", name, of.Unreachable)
		if of.InBucket {
			p.patience = specPatience // the specification says which bucket is the cluster's
		}
		return p
	case of.Unreachable != "":
		d.record("", of.Unreachable, of.File)
		return problem{}
	case of.InBucket:
		target := d.anyOf(in)
		if target == "" {
			return problem{reason: ReasonWaitingForMachine, text: "Waiting for a machine with the role etcd"}
		}
		return d.beginOn(in, target)
	}
	i := slices.IndexFunc(in.Machines, func(m Machine) bool { return m.Etcd && m.Name == of.Machine })
	switch where := cmp.Or(of.Node, of.Machine, "(unknown)"); {
	case i >= 0 && in.Machines[i].Deleting:
		return problem{reason: ReasonWaitingForMachine,
			text: "Waiting for Machine " + of.Machine + ", which has the file and is being deleted, to be gone"}
	case i >= 0:
		return d.beginOn(in, of.Machine)
	case of.Listed:
		return fail(ReasonMachineNotFound, "The file of ETCDSnapshot %s is on Node %s, and the cluster has no Machine with the role etcd "+
			"for it. Delete the file there, or delete the Node: its snapshots are missing then, and their ETCDSnapshots can be deleted", name, where)
	default:
		d.record("", fmt.Sprintf("it is on Node %s, which has no Machine with the role etcd in the cluster", where), of.File)
		return problem{}
	}
}

func (d deletion) beginOn(in Inputs, machine string) problem {
	if p := busy(in, []string{machine}); p != (problem{}) {
		return p
	}
	// It is recorded also for when the patience with a machine that starts has ended.
	d.record(machine, "", in.Deletion.File)
	return starting(in, []string{machine})
}

func (d deletion) record(machine, unreachable string, file operationv1.DeletedSnapshot) {
	d.Status.MachineName, d.Status.Unreachable, d.Status.Snapshot = machine, unreachable, &file
}

func (d deletion) inBucket() bool {
	return d.Status.Snapshot != nil && strings.HasPrefix(d.Status.Snapshot.Location, "s3://")
}

// target is the machine that deletes the file; none where no machine can.
func (d deletion) target(in Inputs) []string {
	if d.Status.MachineName == "" {
		return nil
	}
	return []string{d.Status.MachineName}
}

// instead names another machine for a file in S3, whatever the first one has done of it: deleting it again does nothing.
func (d deletion) instead(in Inputs, _ bool) string {
	if !d.inBucket() {
		return ""
	}
	return d.anyOf(in)
}

// anyOf prefers a machine that has applied its plan, whose agent is there, and that does not have the file of which the one in S3 is a
// copy: both have the same name. It is empty where there is no machine with etcd.
func (d deletion) anyOf(in Inputs) string {
	rank := func(m Machine) (n int) {
		unseen := m.LastSeen.IsZero() || in.Now.Sub(m.LastSeen).Abs() > seenRecently
		for bit, worse := range []bool{m.Name == in.Deletion.Machine, unseen, m.Progress != rollout.ProgressApplied, !m.HasPlanSecret} {
			if worse {
				n += 1 << bit
			}
		}
		return n
	}
	var found []Machine
	for _, m := range in.Machines {
		if m.Etcd && !m.Deleting {
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.MinFunc(found, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	}).Name
}

// cleanUp waits until the cluster does not list the file, and has the hub delete the ETCDSnapshot. One that is another cluster's by now
// stays.
func (d deletion) cleanUp(in Inputs, _ time.Duration) (string, Decision) {
	again := listInterval
	if !in.Connected {
		again = hubInterval
	}
	switch {
	case !in.Deletion.Found || in.Deletion.Problem != "":
		return "", Decision{}
	case in.Deletion.Listed:
		return fmt.Sprintf("Waiting for the cluster to remove %s from its list of snapshots", d.Status.Snapshot.Name), Decision{Again: again}
	case in.Deletion.Followed && !in.Connected:
		return "Waiting for the hub to reach the cluster's API, to see that " + d.Status.Snapshot.Name + " is not listed", Decision{Again: again}
	}
	return "Deleting ETCDSnapshot " + d.Spec.Args.Name, Decision{DeleteSnapshot: true, Again: again}
}

func (d deletion) done(s *operationv1.Status) string {
	why := d.Status.Unreachable
	for _, m := range s.Machines {
		if m.Message != "" { // the step is left out on a machine that was deleted
			why = "Machine " + m.Name + ", which has it, was deleted"
		}
	}
	file := d.Status.Snapshot.Name
	switch {
	case why != "":
		return fmt.Sprintf("The file %s cannot be reached: %s. Its ETCDSnapshot was deleted; the file, if there is one, was not", file, why)
	case d.inBucket():
		return fmt.Sprintf("The snapshot %s was deleted from S3", file)
	}
	return fmt.Sprintf("The snapshot %s was deleted on %s", file, d.Status.MachineName)
}

func (d deletion) advice(step string) string {
	switch {
	case step == operationv1.StepDelete:
		return "The file may be there still: create another ETCDSnapshotDelete when the cause is removed"
	case slices.ContainsFunc(d.Status.Machines, func(m operationv1.MachineStatus) bool { return m.Message != "" }):
		return "The file may be there still: Machine " + d.Status.MachineName + ", which has it, was deleted before the file was"
	case d.Status.MachineName != "":
		return "The file is deleted; the ETCDSnapshot is deleted when the hub sees that the cluster does not list it"
	}
	return ""
}
