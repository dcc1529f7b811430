package rollout

import "fmt"

// votes reports whether the machine counts for etcd's quorum. While the API cannot be asked, a machine counts that others have joined, and
// one that has joined another and works, or did before its present change: it has the cluster's data. A member that does not answer etcd's
// leader may be a learner, and counts nevertheless.
func (m *Machine) votes() bool {
	switch m.Membership {
	case MemberVoter:
		return true
	case MemberUnknown:
		worked := m.Underway != ChangeNone && m.Underway != ChangeFirst
		return m.Etcd && (m.MemberHealth == MemberUnhealthy || m.JoinURL != "" || m.JoinedTo != "" && (m.Working() || worked))
	}
	return false
}

// mayVote reports whether the machine may be a voting member of etcd that the cluster's API does not show: a new server joins etcd, and its
// leader makes it a voter, before the server's kubelet registers the Node. A first plan that fails in between leaves such a member.
func (m *Machine) mayVote() bool {
	return m.Etcd && !m.Deleting && m.Progress == ProgressFailed && m.Underway == ChangeFirst && m.JoinedTo != "" &&
		m.Membership != MemberLearner && !m.votes() && !m.known()
}

// etcdActivity is what a member of etcd is going through that others have to wait for, as the predicate of a message. Empty for nothing.
type etcdActivity string

const (
	etcdRemoving = etcdActivity("is being removed from etcd")
	etcdLeaving  = etcdActivity("is about to be removed from etcd")
	etcdLearning = etcdActivity("is not a voting member of etcd yet")
	// etcdUnresponsive is a new member of which is known only that it does not answer.
	etcdUnresponsive = etcdActivity("has joined etcd and does not answer its leader")
	etcdChanging     = etcdActivity("is being changed")
	etcdDraining     = etcdActivity("is being drained")
	// etcdUnverified is a machine whose change has failed, or whose etcd did not come back.
	etcdUnverified = etcdActivity("was changed and its etcd is not verified yet")
	etcdJoining    = etcdActivity("is joining etcd")
	// etcdMembershipUnknown lasts until the cluster's API is reached.
	etcdMembershipUnknown = etcdActivity("may not be a voting member of etcd yet")
)

// etcdActivity of a machine. A new member whose Node is lost is ignored, since it may never return, unless its agent was applying a plan
// when last heard of: that may be why. nodesSeen is set where the cluster's Nodes were ever read: from then on a machine's Node has the
// answer.
func (m *Machine) etcdActivity(nodesSeen bool) etcdActivity {
	lost := m.Node == NodeLost && m.Progress != ProgressApplying
	switch {
	case m.Removal == RemovalRequested && m.Membership != MemberNone:
		return etcdRemoving
	case !m.Etcd:
	case m.Membership == MemberLearner && !lost:
		return etcdLearning
	case m.joiningEtcd():
		if !m.Deleting && !lost {
			return etcdJoining
		}
	case m.changing():
		return etcdChanging
	case m.Deleting || lost:
	case m.MemberHealth == MemberUnhealthy && m.JoinURL == "":
		return etcdUnresponsive
	case m.draining():
		return etcdDraining
	case nodesSeen && m.Membership == MemberUnknown && m.JoinURL == "" && m.Progress != ProgressNone:
		return etcdMembershipUnknown
	}
	return ""
}

// joiningEtcd reports whether the machine is becoming a member of etcd. One whose plan has failed is not.
func (m *Machine) joiningEtcd() bool {
	if m.Membership == MemberVoter || m.JoinURL != "" {
		return false
	}
	return m.bootstrapping() || m.Progress == ProgressApplied && (m.Membership != MemberUnknown || !m.Working())
}

// nodesSeen reports whether the cluster's Nodes were ever read.
func nodesSeen(machines []Machine) bool {
	return anyMachine(machines, func(m *Machine) bool { return m.Version != "" || m.Node != NodeUnknown })
}

// quorum is how many of a number of voters must be up for etcd to work.
func quorum(voters int) int { return voters/2 + 1 }

// electorate is the voting members of etcd.
type electorate struct {
	// voters are machines and, as "Node <name>", members without a Machine. down are those of them that are not known to be and to stay up.
	voters, down []string
}

// electorateOf leaves out one machine; an empty name leaves out none. A member whose change has ended and is not verified counts as down,
// or with unverified set as what is known of its etcd.
func electorateOf(in Inputs, without string, unverified bool) electorate {
	var e electorate
	for i := range in.Machines {
		m := &in.Machines[i]
		if m.Name != without && m.votes() {
			e.add(m.Name, m.etcdState(in.Now) == etcdUp && (unverified || !m.restartUnverified(in.Now)) && !m.changing())
		}
	}
	for _, o := range in.OrphanedMembers {
		if o.Membership == MemberVoter || o.Membership == MemberUnknown {
			e.add("Node "+o.Node, o.etcdState(in.Now) == etcdUp)
		}
	}
	return e
}

func (e *electorate) add(name string, up bool) {
	e.voters = append(e.voters, name)
	if !up {
		e.down = append(e.down, name)
	}
}

func (e electorate) up() int { return len(e.voters) - len(e.down) }

// restartLosesQuorum says why a voter cannot restart now; zero if it can. etcd needs its quorum without it. One or two members have none
// to spare: then all others must be up, and what else may be a member does not matter, since its first plan may fail because of them. Of
// several members whose changes have failed, each would wait for another: a machine that was changed itself, which may restart at any
// moment anyway, goes by the state of their etcd.
func restartLosesQuorum(in Inputs, m *Machine) Wait {
	if !m.votes() || m.etcdState(in.Now) == etcdDown {
		return Wait{}
	}
	others := electorateOf(in, m.Name, m.restartUnverified(in.Now))
	voters := len(others.voters) + 1
	var unseen []string
	if voters > 2 {
		unseen = mayVote(in)
	}
	all := voters + len(unseen)
	if others.up() >= min(quorum(all), all-1) {
		return Wait{}
	}
	message := fmt.Sprintf("Waiting for %s to be up: while %s changes, %s",
		joinNames(append(others.down, unseen...)), m.Name, votersUp(others.up(), all))
	if len(unseen) > 0 {
		message += fmt.Sprintf("; the first plan of %s failed, perhaps after it had joined etcd: correct the plan, or delete the machine",
			joinNames(unseen))
	}
	return Wait{ReasonWaitingForQuorum, message}
}

// mayVote returns the machines that may be voting members of etcd without a Node.
func mayVote(in Inputs) (names []string) {
	for i := range in.Machines {
		if in.Machines[i].mayVote() {
			names = append(names, in.Machines[i].Name)
		}
	}
	return names
}

// votersUp compares the number of members that are up with the quorum.
func votersUp(up, voters int) string {
	return fmt.Sprintf("only %d of %d voting etcd members are up, %d required", up, voters, quorum(voters))
}
