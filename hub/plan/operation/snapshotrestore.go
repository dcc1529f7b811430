package operation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

const (
	// checkTimeout is how long the agents of servers may take to answer before anything is stopped.
	checkTimeout = 5 * time.Minute
	// stopTimeout is how long machines may take to stop, and stopPatience how long workers are waited for.
	stopTimeout, stopPatience = 10 * time.Minute, 3 * time.Minute
	// restoreTimeout is how long a machine may take to restore a snapshot, perhaps after it has downloaded it and the images of its version.
	restoreTimeout = 30 * time.Minute
	// startTimeLimit is how long a machine may take to start until it is healthy.
	startTimeLimit = 15 * time.Minute
	// nodesTimeout is how long the hub may take to reach the cluster again, and the Nodes to be ready. strayTime is how long the control plane
	// has to find out which kubelets do not report, which takes it less than a minute.
	nodesTimeout, strayTime = 20 * time.Minute, 2 * time.Minute
	// listTime is how long a cluster may take to list the files of its snapshots after a server has started: a restored one knows only those
	// of the snapshot's time, until it has looked through its folders and its bucket.
	listTime = 3 * time.Minute
	// hubInterval is how often the hub looks at the Nodes again where nothing else makes it.
	hubInterval = 15 * time.Second
)

// restore is an ETCDSnapshotRestore.
type restore struct {
	*operationv1.ETCDSnapshotRestore
}

func snapshotRestore(op *operationv1.ETCDSnapshotRestore) kind {
	r := restore{op}
	return kind{
		begin:  r.begin,
		done:   r.done,
		broken: r.broken,
		advice: r.advice,
		steps: []step{
			{name: operationv1.StepPreflight, tasks: r.checkOf, machines: r.servers, timeout: checkTimeout, regardless: true, apart: true,
				title: "The check before the restore", doing: "answer and to be checked"},
			{name: operationv1.StepShutdown, task: TaskStop, machines: r.running, timeout: stopTimeout, optional: r.waitForStop,
				regardless: true, apart: true, title: "Stopping", doing: "stop"},
			{name: operationv1.StepRestore, task: TaskRestoreSnapshot, machines: r.target, timeout: restoreTimeout,
				regardless: true, rendered: true, title: "Restoring the snapshot", doing: "restore the snapshot"},
			{name: operationv1.StepPostRestorePodCleanup, task: TaskStart, machines: r.target, timeout: startTimeLimit, healthy: true,
				joinable: true, regardless: true, rendered: true, title: "Starting the restored machine", doing: "start with the restored data"},
			{name: operationv1.StepInitialRestartCluster, task: TaskStart, machines: r.others, timeout: startTimeLimit, healthy: true,
				order: inTiers, optional: func(Machine) time.Duration { return startTimeLimit }, regardless: true, rendered: true,
				title: "Starting the other machines", doing: "start and to join the restored machine"},
			{name: operationv1.StepPostRestoreNodeCleanup, hub: cleanUpNodes, timeout: nodesTimeout, title: "Deleting stale Nodes"},
			{name: operationv1.StepRestartCluster, hub: waitForNodes, timeout: nodesTimeout, title: "Waiting for Nodes"},
		},
	}
}

// RestoreTarget is the machine that an operation restores a snapshot on, from when machines are stopped for it: it is the init node then,
// whatever data others have. Empty for none.
func RestoreTarget(op operationv1.Operation) string {
	if r, is := op.(*operationv1.ETCDSnapshotRestore); is && Exclusive(op) {
		return r.Status.MachineName
	}
	return ""
}

// Exclusive reports whether nothing else may be delivered to any machine: a restore has begun to stop them.
func Exclusive(op operationv1.Operation) bool {
	r, is := op.(*operationv1.ETCDSnapshotRestore)
	return is && r.Status.Phase == operationv1.PhaseInProgress && r.Status.Step != "" && r.Status.Step != operationv1.StepPreflight
}

// RestoresData reports whether a restore has stopped the machines, so that the tokens of the snapshot's time are those of the cluster: a
// machine starts with its data next, or stays stopped. Before that the restore may end with nothing stopped.
func RestoresData(op operationv1.Operation) bool {
	r, is := op.(*operationv1.ETCDSnapshotRestore)
	return is && Exclusive(op) && r.Status.Step != operationv1.StepShutdown
}

// NeedsNodes reports whether the operation is in a step that decides by the Nodes as they are now.
func NeedsNodes(op operationv1.Operation) bool {
	r, is := op.(*operationv1.ETCDSnapshotRestore)
	return is && Exclusive(op) && (r.Status.Step == operationv1.StepPostRestoreNodeCleanup || r.Status.Step == operationv1.StepRestartCluster)
}

// begin records the machine and the file, which do not change later.
func (r restore) begin(in Inputs) problem {
	target, p := in.Snapshot.target(in)
	if p == (problem{}) {
		p = unrenderable(in, target)
	}
	if p == (problem{}) {
		p = leaving(in, target)
	}
	if p != (problem{}) {
		return p
	}
	file := in.Snapshot.File
	r.Status.MachineName, r.Status.Snapshot = target, &file
	return problem{}
}

// leaving is a problem while a machine with etcd is being deleted that still runs: nothing stops it, and with others it may keep the old
// cluster up beside the restored one. What a hub that was down has not seen may run as well, until agents have had the time to come back.
func leaving(in Inputs, target string) problem {
	still, silent, gone := stillRunning(in)
	returning := reconnectTime - in.Now.Sub(in.Since)
	switch {
	case len(still) > 0:
		return problem{reason: ReasonWaitingForMachine, again: gone, text: fmt.Sprintf("Waiting for %s to be gone: a Machine that is being "+
			"deleted is not stopped for a restore on %s. Switch it off", message.JoinNames(still, maxNames), target)}
	case len(silent) > 0 && returning > 0:
		return problem{reason: ReasonWaitingForMachine, again: returning, text: fmt.Sprintf("Waiting %s after the start of the hub to see "+
			"whether %s, which is being deleted, still runs", reconnectTime, message.JoinNames(silent, maxNames))}
	}
	return problem{}
}

// stillRunning are machines with etcd that are being deleted: those whose agent was seen recently, and in how long that of one of them will
// count as gone, and those whose agent was not. Both are in order.
func stillRunning(in Inputs) (running, silent []string, gone time.Duration) {
	gone = seenRecently
	for _, m := range in.Machines {
		switch age := in.Now.Sub(m.LastSeen).Abs(); { // it is yet to come where the hub's clock was ahead
		case !m.Deleting || !m.Etcd || m.Progress == rollout.ProgressNone || m.LastSeen.IsZero():
		case age < seenRecently:
			running, gone = append(running, m.Name), min(gone, seenRecently-age)
		default:
			silent = append(silent, m.Name)
		}
	}
	slices.Sort(running)
	slices.Sort(silent)
	return running, silent, gone
}

const (
	// seenRecently is how long after it was last seen an agent counts as there.
	seenRecently = 15 * time.Minute
	// reconnectTime is how long agents may take to be seen by a hub that has started: they try again after a minute at the latest.
	reconnectTime = 3 * time.Minute
)

func (r restore) is(m Machine) bool { return m.Name == r.Status.MachineName }

func (r restore) target(in Inputs) []string { return names(in.Machines, r.is) }

// broken ends a restore whose machine was deleted before others have its data, or that would leave one running which is being deleted since
// the restore began.
func (r restore) broken(in Inputs) string {
	if r.Status.Step == operationv1.StepPreflight {
		if running, _, _ := stillRunning(in); len(running) > 0 {
			return message.JoinNames(running, maxNames) + ", which would not be stopped, was deleted while the restore was checked"
		}
	}
	if r.Status.Step == operationv1.StepPostRestoreNodeCleanup || r.Status.Step == operationv1.StepRestartCluster || len(r.target(in)) > 0 {
		return ""
	}
	return "Machine " + r.Status.MachineName + ", on which the snapshot is restored, was deleted"
}

// servers are the restored machine, and those that have been servers: each of them must be stopped, and an agent that does not answer
// does not stop its machine.
func (r restore) servers(in Inputs) []string {
	return names(in.Machines, func(m Machine) bool { return r.is(m) || m.Server() && m.Progress != rollout.ProgressNone })
}

func (r restore) checkOf(m Machine) TaskName {
	if r.is(m) {
		return TaskCheckSnapshot
	}
	return TaskPing
}

// running are the machines that were given a plan. Those with Windows have no script that stops their containers, and go on with the old
// configuration until the others have started.
func (r restore) running(in Inputs) []string {
	return names(in.Machines, func(m Machine) bool { return m.Progress != rollout.ProgressNone && !m.Windows })
}

func (r restore) others(in Inputs) []string {
	return names(in.Machines, func(m Machine) bool { return m.Progress != rollout.ProgressNone && !r.is(m) })
}

// waitForStop does not wait long for workers: one that is down runs nothing, and stops when it is started again.
func (r restore) waitForStop(m Machine) time.Duration {
	if r.is(m) || m.Server() && !m.Deleting {
		return 0
	}
	return stopPatience
}

// inTiers starts servers one after the other, those with etcd first, and then all workers.
func inTiers(m Machine) string {
	switch {
	case m.Etcd:
		return "1 etcd " + m.Name
	case m.ControlPlane:
		return "2 control plane " + m.Name
	}
	return "3 worker"
}

// cleanUpNodes deletes Nodes that the snapshot has and that are no Machines' any more, once the control plane has found out that their
// kubelets do not report.
func cleanUpNodes(in Inputs, since time.Duration) (string, Decision) {
	if !in.Connected {
		return "Waiting for the hub to reach the cluster's API", Decision{Again: hubInterval}
	}
	do, undecided := Decision{Again: hubInterval}, []string(nil)
	for _, n := range in.StrayNodes {
		if n.Lost {
			do.DeleteNodes = append(do.DeleteNodes, n.Name)
		} else {
			undecided = append(undecided, n.Name)
		}
	}
	switch {
	case len(do.DeleteNodes) > 0:
		return "Deleting Nodes without a Machine: " + message.JoinNames(do.DeleteNodes, maxNames), do
	case len(undecided) > 0 && since < strayTime:
		return "Waiting to see whether Nodes without a Machine report: " + message.JoinNames(undecided, maxNames), do
	}
	return "", Decision{}
}

// waitForNodes waits for the Nodes of the machines that are back.
func waitForNodes(in Inputs, _ time.Duration) (string, Decision) {
	if !in.Connected {
		return "Waiting for the hub to reach the cluster's API", Decision{Again: hubInterval}
	}
	waiting := names(in.Machines, func(m Machine) bool {
		return m.Progress == rollout.ProgressApplied && m.Working() && m.Node != rollout.NodeReady
	})
	if len(waiting) == 0 {
		return "", Decision{}
	}
	return "Waiting for the Nodes of " + message.JoinNames(waiting, maxNames) + " to be ready", Decision{Again: hubInterval}
}

func (r restore) done(s *operationv1.Status) string {
	text := "The cluster was restored from " + r.Status.Snapshot.Name + " on " + r.Status.MachineName
	if r.Status.Snapshot.SHA256 == "" && r.Status.Snapshot.S3 == nil {
		text += "; no checksum of the file was known"
	}
	var failed []string
	for _, m := range s.Machines {
		if m.Phase == operationv1.PhaseFailed {
			failed = append(failed, m.Name)
		}
	}
	if len(failed) == 0 {
		return text
	}
	return text + "; not back yet, see status.machines: " + message.JoinNames(failed, maxNames)
}

// nothingStopped reports whether a restore that ends has stopped no machine: it has not come to that, or has given none the task.
func (e *engine) nothingStopped() bool {
	switch e.status.Step {
	case "", operationv1.StepPreflight:
		return true
	case operationv1.StepShutdown:
		gone := len(e.in.Machines) == 0 // what they had is not known
		return !gone && !e.in.Stopped && !slices.ContainsFunc(e.in.Machines, func(m Machine) bool { return m.Has }) &&
			!slices.ContainsFunc(e.status.Machines, func(m operationv1.MachineStatus) bool { return m.Phase == operationv1.PhaseSucceeded })
	}
	return false
}

func (r restore) advice(step string) string {
	if r.Status.Unchanged {
		return "Nothing was stopped"
	}
	switch step {
	case operationv1.StepShutdown, operationv1.StepRestore, operationv1.StepPostRestorePodCleanup:
		return "Machines are stopped, and stay so until another ETCDSnapshotRestore, of the same or another snapshot, has restored the cluster"
	}
	text := "The snapshot itself is restored, and runs on " + r.Status.MachineName
	if step == operationv1.StepInitialRestartCluster {
		text += ". Machines that had not begun to start stay stopped, and the RKEControlPlane names them: delete and replace those Machines, " +
			"which loses nothing, or create another ETCDSnapshotRestore, which discards what was written since"
	}
	if step != operationv1.StepRestartCluster {
		text += ". Delete Nodes that have no Machine"
	}
	return text
}

// Snapshot is the snapshot that an ETCDSnapshotRestore names.
type Snapshot struct {
	// Problem says why it cannot be restored, as a sentence without an end; empty if it can.
	Problem string
	// Unconfigured says what the specification of the Cluster lacks to restore it; empty for nothing. That may be on its way.
	Unconfigured string
	// MissingSince is since when the cluster does not list the file; zero if it does, or nothing is known.
	MissingSince time.Time
	// Machine is the name of the Machine that has the file; empty where that is not known, or any machine will do.
	Machine string
	// File is what is restored.
	File operationv1.RestoredSnapshot
	// Version is the Kubernetes version of the cluster when the snapshot was taken, empty if unknown; Wanted the one of the specification.
	Version, Wanted string
}

// target is the machine to restore on.
func (s Snapshot) target(in Inputs) (string, problem) {
	fail := func(reason, format string, args ...any) (string, problem) {
		return "", problem{reason: reason, fatal: true, text: fmt.Sprintf(format, args...)}
	}
	if s.Problem != "" {
		return fail(ReasonSnapshotInvalid, "%s", s.Problem)
	}
	if p := s.missing(in.Now); p != (problem{}) {
		return "", p
	}
	if why := cmp.Or(s.Unconfigured, s.incompatible()); why != "" {
		return "", problem{reason: ReasonSnapshotInvalid, fatal: true, patience: specPatience, text: why}
	}
	var candidates []Machine
	for _, m := range in.Machines {
		if m.Etcd && !m.Deleting && (m.Name == s.Machine || s.Machine == "") {
			candidates = append(candidates, m)
		}
	}
	switch {
	case len(candidates) == 0 && s.Machine != "":
		return fail(ReasonMachineNotFound, "The file of the snapshot is on Machine %s, and the cluster has no such Machine with the role "+
			"etcd. Copy the file to one that it has and create an ETCDSnapshot for it, or restore a snapshot in S3", s.Machine)
	case len(candidates) == 0:
		return "", problem{reason: ReasonWaitingForMachine, text: "Waiting for a machine with the role etcd"}
	case len(candidates) > 1 && s.File.S3 == nil:
		return fail(ReasonMachineNotFound, "Which machine has the file of the snapshot is not known, and the cluster has several with the role "+
			"etcd. Name it in the label rke.cattle.io/machine-name of the ETCDSnapshot")
	}
	slices.SortFunc(candidates, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(rank(a, in.Now), rank(b, in.Now)), strings.Compare(a.Name, b.Name))
	})
	m := candidates[0]
	if !m.HasPlanSecret || m.Unusable != "" && m.JoinURL == "" {
		return "", problem{reason: ReasonWaitingForMachine,
			text: "Waiting for " + m.Name + ", which " + cmp.Or(m.Unusable, "has no plan Secret yet")}
	}
	return m.Name, problem{}
}

// missing is a problem where the cluster does not list the file. It may do so again soon.
func (s Snapshot) missing(now time.Time) problem {
	switch left := listTime - now.Sub(s.MissingSince); {
	case s.MissingSince.IsZero():
		return problem{}
	case left > 0:
		return problem{reason: ReasonWaitingForSnapshot, again: left, text: fmt.Sprintf("Waiting for the cluster to list the file %s of the "+
			"snapshot: a server that has started may not list it yet", s.File.Name)}
	}
	return problem{reason: ReasonSnapshotInvalid, fatal: true, text: fmt.Sprintf("The file %s of the snapshot is missing: since %s the "+
		"cluster does not list it, or its Node is gone", s.File.Name, s.MissingSince.UTC().Format(time.RFC3339))}
}

// rank prefers a machine whose agent is there, then the init node, then one that serves the API.
func rank(m Machine, now time.Time) (n int) {
	unseen := m.LastSeen.IsZero() || now.Sub(m.LastSeen).Abs() > seenRecently
	for bit, worse := range []bool{!m.ControlPlane, !m.Init, !m.HasPlanSecret, unseen} {
		if worse {
			n += 1 << bit
		}
	}
	return n
}

// incompatible says why the cluster's version cannot read what a snapshot of another holds; empty if it can, or that is not known.
func (s Snapshot) incompatible() string {
	had, wants := minor(s.Version), minor(s.Wanted)
	switch {
	case had == 0 || wants == 0:
		return ""
	case had > wants:
		return fmt.Sprintf("The snapshot is of Kubernetes %s, which %s cannot read. Restore it with restoreRKEConfig kubernetesVersion",
			s.Version, s.Wanted)
	case had < 25 && wants >= 25:
		// PodSecurityPolicies are gone, and what still refers to them would not start.
		return fmt.Sprintf("The snapshot is of Kubernetes %s, and the cluster has %s: a snapshot from before 1.25 needs its own version. "+
			"Restore it with restoreRKEConfig kubernetesVersion", s.Version, s.Wanted)
	}
	return ""
}

// minor is the minor version of Kubernetes 1; 0 if it cannot be read.
func minor(version string) (n int) {
	if _, err := fmt.Sscanf(version, "v1.%d.", &n); err != nil {
		return 0
	}
	return n
}
