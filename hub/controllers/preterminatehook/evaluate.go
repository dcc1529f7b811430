package preterminatehook

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/message"
)

// The reasons of the condition EtcdMemberRemoved, beside those of hub/plan/rollout. They are API.
const (
	reasonForced            = "Forced"
	reasonNoMember          = "NoMember"
	reasonClusterDeleted    = "ClusterDeleted"
	reasonNeverStarted      = "ClusterNeverStarted"
	reasonRemoved           = "Removed"
	reasonWaitingForHooks   = reasons.WaitingForHooks
	reasonWaitingForDrain   = reasons.WaitingForDrain
	reasonUnreachable       = "ClusterUnreachable"
	reasonRemoving          = reasons.Removing
	reasonLastMember        = "LastMember"
	reasonWaitingForServers = reasons.WaitingForServers
	reasonSettling          = reasons.Settling
	// reasonWaitingForNode is that of a machine that was deleted while it started.
	reasonWaitingForNode = rollout.ReasonWaitingForNode
	// reasonNodeTaken is that of a machine whose Node is that of another one by now.
	reasonNodeTaken = "NodeTaken"
	// reasonRemovalFailed is that of a member whose removal the hub could not request.
	reasonRemovalFailed = "RemovalFailed"
	// reasonControlPlaneDeleted is that of members whose cluster has lost all machines that could take over its data, by their deletion.
	reasonControlPlaneDeleted = "ControlPlaneDeleted"
)

const (
	// rejoinTimeout is how long after its deletion a member is kept for servers that have joined through it, so that they still find it when
	// they restart. hub/plan/rollout gives them another join address meanwhile.
	rejoinTimeout = 5 * time.Minute
	// abandonTimeout is how long members are kept where every etcd and control plane machine of a cluster is being deleted. Until then a new
	// machine can still take over the data.
	abandonTimeout = 5 * time.Minute
	// joinTimeout is how long after its deletion a machine is kept that was starting, until its Node says whether it is a member. A server
	// of k3s is promoted to a voter before it starts the kubelet, which registers the Node half a minute later on a slow machine.
	joinTimeout = 3 * time.Minute
	// electionTimeout is how long one of two members is kept, so that the other is not left alone in the middle of an election.
	electionTimeout = 20 * time.Second
	// refreshInterval is how often Nodes are read by another connection after a removal was requested: the connection that is watched may be
	// the removed member's own.
	refreshInterval = 10 * time.Second
	// quorumInterval is how often a removal for which too few members would be left is evaluated: it waits some time only for a new machine
	// that gets no infrastructure.
	quorumInterval = time.Minute
)

// clusterState is what is known of a cluster with a deleted member.
type clusterState struct {
	// deletion says why no data of the cluster is to be kept; empty if it is.
	deletion string
	// refused says why the RKEControlPlane does not count as the cluster's at the moment; nil if it does, or there is none.
	refused *cause.Cause
	// restoring names the restore of an etcd snapshot for which machines of the cluster are stopped; empty for none.
	restoring string
	// started is set once the cluster's API was reached.
	started bool
	// connected is set while there is a connection to the cluster's API that lists its Nodes, unlisted while there is one that does not.
	connected, unlisted bool
	// abandonedAt is when the last etcd or control plane machine of the cluster was deleted; zero while one of them stays.
	abandonedAt time.Time
	// inputs are all machines of the cluster, the orphaned members, and the present.
	inputs rollout.Inputs
}

// candidate is a Machine that is being deleted and has the hook.
type candidate struct {
	machine *clusterv1.Machine
	state   rollout.Machine
	// taken is the name of its Node, where that is another Machine's by now; empty where it is not.
	taken string
	// forced is set where the user skips the removal, by rkev1.EtcdForceRemoveAnnotation.
	forced bool
}

// action is what happens to a candidate.
type action int

const (
	keepHook action = iota
	requestRemoval
	removeHook
)

// decision is an action with reason and message of the condition.
type decision struct {
	action          action
	reason, message string
	// requeueAfter is when to evaluate again, where no watch reports the change; zero if one does.
	requeueAfter time.Duration
}

// rules are evaluated in this order; the first that decides wins:
//
//	rule                      decides for                                             action
//	isForced                  a Machine with the annotation to force it               remove the hook
//	hasNoEtcd                 a machine without the etcd role that is no member       remove the hook
//	clusterDeleted            a cluster that is being deleted                         remove the hook
//	isRefused                 a cluster whose RKEControlPlane does not belong to it   keep
//	neverStarted              a cluster whose API was never reached                   remove the hook
//	isRestored                a cluster that is being restored from a snapshot        keep
//	isAbandoned               a control plane deleted as a whole, after a timeout     remove the hook
//	isTaken                   a Machine whose Node is another Machine's by now        keep
//	awaitsOtherHooks          a Machine with other pre-terminate hooks                keep
//	isDraining                a Machine that Cluster API has not drained yet          keep
//	notConnected              a cluster without a connection, or without its Nodes    keep
//	isJoining                 a machine that was starting, for a while                keep
//	isRemoved                 a machine that is no member                             remove the hook
//	isBeingRemoved            a member whose removal was requested                    keep
//	isLastMember              a member beside which no etcd machine stays             keep
//	isJoinAddress             a member that servers join through, for a while         keep
//	electionPending           one of two members, for a moment                        keep
//	removalBlocked            a member that hub/plan/rollout holds back               keep
//
// The removal of any other is requested.
var rules = []func(clusterState, candidate) *decision{
	isForced, hasNoEtcd, clusterDeleted, isRefused, neverStarted, isRestored, isAbandoned, isTaken, awaitsOtherHooks, isDraining, notConnected,
	isJoining, isRemoved, isBeingRemoved, isLastMember, isJoinAddress, electionPending, removalBlocked,
}

// evaluate decides about one candidate.
func evaluate(s clusterState, c candidate) decision {
	for _, rule := range rules {
		d := rule(s, c)
		if d == nil {
			continue
		}
		if left := s.untilAbandoned(); d.action == keepHook && left > 0 && (d.requeueAfter == 0 || left < d.requeueAfter) {
			d.requeueAfter = left
		}
		return *d
	}
	return decision{action: requestRemoval, reason: reasonRemoving, message: "Requested the removal of the etcd member"}
}

func decide(do action, reason, format string, args ...any) *decision {
	return &decision{action: do, reason: reason, message: fmt.Sprintf(format, args...)}
}

func decideIf(condition bool, do action, reason, format string, args ...any) *decision {
	if !condition {
		return nil
	}
	return decide(do, reason, format, args...)
}

// hint ends the message of a wait that may never end.
const hint = "To skip the removal, set the annotation " + rkev1.EtcdForceRemoveAnnotation + "=true on the Machine"

// removalFailed keeps a member whose removal could not be requested, as where an admission webhook of the cluster refuses changes of Nodes.
// The error brings the next attempt.
func removalFailed(err error) decision {
	return *decide(keepHook, reasonRemovalFailed, "%s; retrying. %s", message.Bound(err.Error(), message.MaxError), hint)
}

func isForced(_ clusterState, c candidate) *decision {
	return decideIf(c.forced, removeHook, reasonForced, "Removal of the etcd member skipped: annotation %s is set",
		rkev1.EtcdForceRemoveAnnotation)
}

// hasNoEtcd keeps a machine that is a member without the label of the role: a change of the label, also in the template of a
// MachineDeployment, takes nothing out of etcd. While the cluster cannot be asked, one without the label counts as a member, too: only
// machines with the role get the hook, and none gets another role in a running cluster.
func hasNoEtcd(s clusterState, c candidate) *decision {
	none := s.connected && c.state.Membership == rollout.MemberNone
	return decideIf(!c.state.Etcd && none, removeHook, reasonNoMember, "Machine has no etcd role")
}

func clusterDeleted(s clusterState, _ candidate) *decision {
	return decideIf(s.deletion != "", removeHook, reasonClusterDeleted, "%s", s.deletion)
}

// isRefused waits for Cluster API to set or correct the owner of the RKEControlPlane: after a backup of the hub was restored, all objects
// have other UIDs for a while, and the cluster is the same.
func isRefused(s clusterState, _ candidate) *decision {
	if s.refused == nil {
		return nil
	}
	d := decide(keepHook, s.refused.Reason, "%s. %s", s.refused.Message, hint)
	d.requeueAfter = refreshInterval
	return d
}

func neverStarted(s clusterState, _ candidate) *decision {
	return decideIf(!s.started, removeHook, reasonNeverStarted, "The cluster's API was never reached, so there is no data to keep")
}

// isRestored waits for the end of a restore: what the cluster says of its members until then may be what the snapshot says.
func isRestored(s clusterState, _ candidate) *decision {
	if s.restoring == "" {
		return nil
	}
	d := decide(keepHook, rollout.ReasonWaitingForOperation, "Waiting for the restore of an etcd snapshot to end (%s)", s.restoring)
	if s.restoring == rollout.ReasonRestoreFailed {
		d = decide(keepHook, rollout.ReasonWaitingForOperation, "A restore of an etcd snapshot has left machines stopped, which the "+
			"RKEControlPlane names: delete all of them, or create another ETCDSnapshotRestore")
	}
	d.requeueAfter = refreshInterval
	return d
}

// untilAbandoned is how long the members of a cluster whose control plane is deleted as a whole are kept; zero for any other.
func (s clusterState) untilAbandoned() time.Duration {
	if s.abandonedAt.IsZero() {
		return 0
	}
	return s.abandonedAt.Add(abandonTimeout).Sub(s.inputs.Now)
}

// isAbandoned releases the members of a control plane that is deleted as a whole: no member is left to keep the data, and soon no API to
// request a removal from.
func isAbandoned(s clusterState, _ candidate) *decision {
	return decideIf(!s.abandonedAt.IsZero() && s.untilAbandoned() <= 0, removeHook, reasonControlPlaneDeleted,
		"All etcd and control plane machines of the cluster are being deleted")
}

// isTaken keeps the Node of a machine that was installed again, and has registered as another one with the same name: Cluster API deletes
// the Node that a Machine names with the Machine, and k3s and RKE2 then remove the other one from etcd.
func isTaken(_ clusterState, c candidate) *decision {
	return decideIf(c.taken != "", keepHook, reasonNodeTaken,
		"Node %s is that of another Machine by now, and it and its etcd member would be deleted with this one. "+
			"To delete this Machine alone, remove its finalizers, and uncordon the Node if it is cordoned", c.taken)
}

// awaitsOtherHooks has the hub's hook be the last, as that of Cluster API's own control plane provider: others may need the Node, and its
// server serves nothing without etcd. One that restarts before its machine is gone joins etcd again, and nobody would wait for its removal.
func awaitsOtherHooks(_ clusterState, c candidate) *decision {
	hooks := machinestate.OtherHooks(c.machine)
	return decideIf(len(hooks) > 0 && c.state.Removal == rollout.RemovalNone && machinestate.AwaitsHooks(c.machine), keepHook,
		reasonWaitingForHooks, "Waiting for other pre-terminate hooks of the Machine to succeed: %s. %s", strings.Join(hooks, ", "), hint)
}

// isDraining keeps the machine in etcd until its Pods are evicted: it may serve the API that they are evicted by.
func isDraining(_ clusterState, c candidate) *decision {
	return decideIf(c.state.Removal == rollout.RemovalNone, keepHook, reasonWaitingForDrain, "Waiting for Cluster API to drain the Node")
}

func notConnected(s clusterState, _ candidate) *decision {
	if s.unlisted {
		return decide(keepHook, reasonUnreachable, "Waiting for the cluster's API to list its Nodes, to remove the etcd member. %s", hint)
	}
	return decideIf(!s.connected, keepHook, reasonUnreachable,
		"Waiting for a connection to the cluster's API, to remove the etcd member. %s", hint)
}

// isJoining waits for the Node of a machine that never had one and has begun to apply its plan: it may be a member of etcd already, which
// would count for the quorum without a machine.
func isJoining(s clusterState, c candidate) *decision {
	left := c.machine.DeletionTimestamp.Add(joinTimeout).Sub(s.inputs.Now)
	begun := c.state.Progress == rollout.ProgressApplying || c.state.Progress == rollout.ProgressApplied
	if c.state.Node != rollout.NodeAbsent || c.machine.Status.NodeRef.IsDefined() || !begun || left <= 0 {
		return nil
	}
	d := decide(keepHook, reasonWaitingForNode, "Waiting up to %s for the Node: the machine was starting when it was deleted, and may be a "+
		"member of etcd already. %s", joinTimeout, hint)
	d.requeueAfter = left
	return d
}

// isRemoved includes a machine that has no Node: it never started, or its Node was deleted by hand.
func isRemoved(_ clusterState, c candidate) *decision {
	return decideIf(c.state.Membership == rollout.MemberNone, removeHook, reasonRemoved, "Machine is not a member of etcd")
}

func isBeingRemoved(_ clusterState, c candidate) *decision {
	if c.state.Removal != rollout.RemovalRequested {
		return nil
	}
	d := decide(keepHook, reasonRemoving, "Waiting for the cluster to remove the etcd member. %s", hint)
	d.requeueAfter = refreshInterval
	return d
}

func isLastMember(s clusterState, c candidate) *decision {
	for _, m := range s.inputs.Machines {
		if m.Etcd && !m.Deleting && m.Name != c.machine.Name {
			return nil
		}
	}
	if s.abandonedAt.IsZero() {
		return decide(keepHook, reasonLastMember,
			"No other etcd machine remains to take over the cluster's data: add one, in a machine pool by a higher quantity, since Cluster API "+
				"counts machines that are being deleted; or delete the Cluster. %s", hint)
	}
	return decide(keepHook, reasonLastMember,
		"All etcd and control plane machines are being deleted, and the cluster's data with them at %s. "+
			"To keep the data, add one with the etcd role before then. %s", s.abandonedAt.Add(abandonTimeout).UTC().Format("15:04:05 MST"), hint)
}

// isJoinAddress keeps a member for a while for servers whose configuration joins it, until that is changed. Workers know all servers, and
// the address of a machine that is down is of no use.
func isJoinAddress(s clusterState, c candidate) *decision {
	left := c.machine.DeletionTimestamp.Add(rejoinTimeout).Sub(s.inputs.Now)
	if left <= 0 || c.state.Lost() {
		return nil
	}
	var joined []string
	for _, m := range s.inputs.Machines {
		if m.Server() && !m.Deleting && m.JoinedTo != "" && m.JoinedTo == c.state.JoinURL {
			joined = append(joined, m.Name)
		}
	}
	if len(joined) == 0 {
		return nil
	}
	d := decide(keepHook, reasonWaitingForServers,
		"Waiting up to %s for servers that joined through this machine to get another join address: %s",
		rejoinTimeout, strings.Join(joined, ", "))
	d.requeueAfter = left
	return d
}

func electionPending(s clusterState, c candidate) *decision {
	members := 0
	for _, m := range s.inputs.Machines {
		if m.Etcd {
			members++
		}
	}
	left := c.machine.DeletionTimestamp.Add(electionTimeout).Sub(s.inputs.Now)
	if members != 2 || left <= 0 {
		return nil
	}
	d := decide(keepHook, reasonSettling, "Waiting %s before the removal leaves a single etcd member", electionTimeout)
	d.requeueAfter = left
	return d
}

func removalBlocked(s clusterState, c candidate) *decision {
	w := rollout.CheckRemoval(s.inputs, c.machine.Name)
	d := decideIf(w != (rollout.Wait{}), keepHook, w.Reason, "%s", w.Message)
	if w.Reason == rollout.ReasonWaitingForQuorum {
		d.requeueAfter = quorumInterval
	}
	return d
}
