package etcdremoval

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
)

// The reasons of the condition EtcdMemberRemoved, beside those of hub/rollout.
const (
	reasonForced            = "Forced"
	reasonNoMember          = "NoMember"
	reasonClusterDeleted    = "ClusterDeleted"
	reasonNeverStarted      = "ClusterNeverStarted"
	reasonRemoved           = "Removed"
	reasonWaitingForDrain   = "WaitingForDrain"
	reasonUnreachable       = "ClusterUnreachable"
	reasonRemoving          = "Removing"
	reasonLastMember        = "LastMember"
	reasonWaitingForServers = "WaitingForServers"
	reasonSettling          = "Settling"
	// reasonControlPlaneDeleted is that of members whose cluster has lost all machines that could take over its data, by their deletion.
	reasonControlPlaneDeleted = "ControlPlaneDeleted"
)

const (
	// rejoinTimeout is how long after its deletion a member is kept for servers that have joined by it, so that they need not look for
	// another one when they restart. hub/rollout gives them another address meanwhile; after that time they go on without.
	rejoinTimeout = 5 * time.Minute
	// reconsiderTime is how long members are kept where every etcd and control plane machine of a cluster is being deleted. Until then a new one
	// can still take over the data.
	reconsiderTime = 5 * time.Minute
	// settleTime is how long one of two members is kept, so that the other is not left alone in the middle of an election.
	settleTime = 20 * time.Second
	// lookInterval is how often a removal that was asked for is looked at: the connection by which Nodes are watched may be the removed
	// member's own.
	lookInterval = 10 * time.Second
)

// situation is what is known of a cluster when a member is to go.
type situation struct {
	// going says why nothing of the cluster is to be kept; empty if something is.
	going string
	// started is set once the cluster's API was there.
	started bool
	// connected is set while the cluster's API can be asked.
	connected bool
	// deletedAt is when the last etcd or control plane machine of the cluster was deleted; zero while one of them stays.
	deletedAt time.Time
	// inputs are all machines of the cluster, and the members without a Machine.
	inputs rollout.Inputs
	now    time.Time
}

// candidate is a Machine that is being deleted and held by the hook.
type candidate struct {
	machine *clusterv1.Machine
	state   rollout.Machine
	// forced is set where the user does not want to wait.
	forced bool
}

// action is what to do with a candidate.
type action int

const (
	keep action = iota
	// ask means to ask the cluster to remove the member.
	ask
	// free means to take the hook away.
	free
)

// verdict is an action with the reason for it.
type verdict struct {
	action          action
	reason, message string
	// again is when to look again, where no watch tells; zero if one does.
	again time.Duration
}

// rules are asked from the front; the first that answers wins.
var rules = []func(situation, candidate) (verdict, bool){
	isForced, hasNoRole, isGoing, hasNeverStarted, isAbandoned, isStillDrained, cannotBeAsked, hasLeft, isLeaving, isLast, isJoined, isSettling, needsQuorum,
}

// judge decides about one candidate.
func judge(s situation, c candidate) verdict {
	for _, rule := range rules {
		v, decided := rule(s, c)
		if !decided {
			continue
		}
		if left := s.reconsiderFor(); v.action == keep && left > 0 && (v.again == 0 || left < v.again) {
			v.again = left
		}
		return v
	}
	return verdict{ask, reasonRemoving, "The cluster was asked to remove the member from etcd", 0}
}

func say(do action, reason, format string, args ...any) (verdict, bool) {
	return verdict{action: do, reason: reason, message: fmt.Sprintf(format, args...)}, true
}

// orForce ends the message of a wait that may have no end.
func orForce() string {
	return fmt.Sprintf("To give the member up without that, set the annotation %s=true on the Machine", rkev1.EtcdForceRemoveAnnotation)
}

func isForced(_ situation, c candidate) (verdict, bool) {
	if !c.forced {
		return verdict{}, false
	}
	return say(free, reasonForced, "The machine goes without a removal from etcd, as the annotation %s says", rkev1.EtcdForceRemoveAnnotation)
}

func hasNoRole(_ situation, c candidate) (verdict, bool) {
	if c.state.Etcd {
		return verdict{}, false
	}
	return say(free, reasonNoMember, "The machine has no etcd")
}

func isGoing(s situation, _ candidate) (verdict, bool) {
	if s.going == "" {
		return verdict{}, false
	}
	return say(free, reasonClusterDeleted, "%s", s.going)
}

func hasNeverStarted(s situation, _ candidate) (verdict, bool) {
	if s.started {
		return verdict{}, false
	}
	return say(free, reasonNeverStarted, "The cluster's API was never reached, so there is no data to keep")
}

// reconsiderFor is how long the members of a cluster that nothing is left of are kept; zero for one of which something stays.
func (s situation) reconsiderFor() time.Duration {
	if s.deletedAt.IsZero() {
		return 0
	}
	return s.deletedAt.Add(reconsiderTime).Sub(s.now)
}

// isAbandoned releases the members of a cluster whose whole control plane was deleted: there is no member left to keep the data, and soon no
// API that could be asked to remove one.
func isAbandoned(s situation, _ candidate) (verdict, bool) {
	if s.deletedAt.IsZero() || s.reconsiderFor() > 0 {
		return verdict{}, false
	}
	return say(free, reasonControlPlaneDeleted, "All etcd and control plane machines of the cluster are being deleted")
}

// isStillDrained leaves the machine in etcd as long as its pods are moved: it may hold the API that they are moved by.
func isStillDrained(_ situation, c candidate) (verdict, bool) {
	if c.state.Removal != rollout.RemovalNone {
		return verdict{}, false
	}
	return say(keep, reasonWaitingForDrain, "Waiting for Cluster API to drain the Node")
}

func cannotBeAsked(s situation, _ candidate) (verdict, bool) {
	if s.connected {
		return verdict{}, false
	}
	return say(keep, reasonUnreachable, "Waiting for the cluster's API to be reached, which is asked to remove the member. %s", orForce())
}

// hasLeft: a machine that has no Node never came, or was removed by hand; nobody could be asked about it anyway.
func hasLeft(_ situation, c candidate) (verdict, bool) {
	if c.state.Membership != rollout.MemberNone {
		return verdict{}, false
	}
	return say(free, reasonRemoved, "The machine is no member of etcd any more")
}

func isLeaving(_ situation, c candidate) (verdict, bool) {
	if c.state.Removal != rollout.RemovalAsked {
		return verdict{}, false
	}
	v, _ := say(keep, reasonRemoving, "Waiting for the cluster to remove the member from etcd. %s", orForce())
	v.again = lookInterval
	return v, true
}

func isLast(s situation, c candidate) (verdict, bool) {
	for _, m := range s.inputs.Machines {
		if m.Etcd && !m.Deleting && m.Name != c.machine.Name {
			return verdict{}, false
		}
	}
	if !s.deletedAt.IsZero() {
		return say(keep, reasonLastMember, "All etcd and control plane machines are being deleted, and the cluster's data with them at %s. To keep the data, add one with etcd before. %s",
			s.deletedAt.Add(reconsiderTime).UTC().Format("15:04:05 MST"), orForce())
	}
	return say(keep, reasonLastMember, "No etcd machine stays that could take over the cluster's data: add one, and this one goes when it has joined; or delete the Cluster. %s", orForce())
}

// isJoined keeps a member for a while for servers whose configuration joins it, until that is changed. Workers know all servers, and a machine
// that is down is of no use to anybody.
func isJoined(s situation, c candidate) (verdict, bool) {
	left := c.machine.DeletionTimestamp.Add(rejoinTimeout).Sub(s.now)
	if left <= 0 || c.state.Lost() {
		return verdict{}, false
	}
	var joined []string
	for _, m := range s.inputs.Machines {
		if m.Server() && !m.Deleting && m.JoinedTo != "" && m.JoinedTo == c.state.JoinURL {
			joined = append(joined, m.Name)
		}
	}
	if len(joined) == 0 {
		return verdict{}, false
	}
	v, _ := say(keep, reasonWaitingForServers, "Waiting up to %s for servers that have joined the cluster at this machine to be given another address to join: %s", rejoinTimeout, strings.Join(joined, ", "))
	v.again = left
	return v, true
}

func isSettling(s situation, c candidate) (verdict, bool) {
	members := 0
	for _, m := range s.inputs.Machines {
		if m.Etcd {
			members++
		}
	}
	left := c.machine.DeletionTimestamp.Add(settleTime).Sub(s.now)
	if members != 2 || left <= 0 {
		return verdict{}, false
	}
	v, _ := say(keep, reasonSettling, "Waiting %s, since only one member will be left", settleTime)
	v.again = left
	return v, true
}

func needsQuorum(s situation, c candidate) (verdict, bool) {
	w := rollout.MayRemove(s.inputs, c.machine.Name)
	if w == (rollout.Wait{}) {
		return verdict{}, false
	}
	return say(keep, w.Reason, "%s", w.Message)
}
