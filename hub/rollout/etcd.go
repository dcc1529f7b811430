package rollout

import (
	"fmt"
	"slices"
)

// votes tells whether the machine counts for etcd's quorum. Where nobody can be asked, one that others have joined does, and one that has
// joined another and works, or did before the change that it is at: it has the cluster's data. One that does not answer etcd's leader may be a
// learner, and counts nevertheless.
func (m Machine) votes() bool {
	switch m.Membership {
	case MemberVoter:
		return true
	case MemberUnknown:
		worked := m.Underway != ChangeNone && m.Underway != ChangeFirst
		return m.Etcd && (m.MemberHealth == MemberUnhealthy || m.JoinURL != "" || m.JoinedTo != "" && (m.Working() || worked))
	}
	return false
}

// What goes on at an etcd machine, as messages say it.
const (
	etcdRemoving = "is being removed from etcd"
	etcdLeaving  = "is about to be removed from etcd"
	etcdLearning = "is not a voting member of etcd yet"
	// etcdUnanswered is a newcomer's of which etcd tells only that it does not answer.
	etcdUnanswered = "has joined etcd and does not answer its leader"
	etcdChanging   = "is being changed"
	etcdDraining   = "is being drained"
	// etcdUnverified is a machine's whose change has failed, or whose etcd did not come back.
	etcdUnverified = "was changed and is not verified to run etcd since"
	etcdJoining    = "is joining etcd"
	etcdUnsure     = "may not be a voting member of etcd yet, which the API of the cluster tells when it is reached"
)

// etcdChange says what is going on at an etcd machine that others have to wait for; empty if nothing is. A newcomer whose Node is lost is
// waited for by nobody, since it may never come back, unless its agent was at work when it was last heard: then that may be why. reached is
// set where the cluster's Nodes were ever seen: from then on a machine's Node tells when it votes, and before that nobody can.
func (m Machine) etcdChange(reached bool) string {
	lost := m.Node == NodeLost && m.Progress != ProgressApplying
	switch {
	case m.Removal == RemovalAsked && m.Membership != MemberNone:
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
		return etcdUnanswered
	case m.draining():
		return etcdDraining
	case reached && m.Membership == MemberUnknown && m.JoinURL == "" && m.Progress != ProgressNone:
		return etcdUnsure
	}
	return ""
}

// joiningEtcd tells whether the machine is on its way into etcd. One whose plan has failed is not.
func (m Machine) joiningEtcd() bool {
	if m.Membership == MemberVoter || m.JoinURL != "" {
		return false
	}
	return m.arriving() || m.Progress == ProgressApplied && (m.Membership != MemberUnknown || !m.Working())
}

// reached tells whether the cluster's API was ever there to tell of its Nodes.
func reached(machines []Machine) bool {
	return slices.ContainsFunc(machines, func(m Machine) bool { return m.Version != "" || m.Node != NodeUnknown })
}

// quorum is how many of a number of voters must be up for etcd to work.
func quorum(voters int) int { return voters/2 + 1 }

// electorate is who votes in etcd.
type electorate struct {
	voters []string
	// down are those of them that are not known to be up, and to go on so.
	down []string
}

// electorateOf leaves out one machine; an empty name leaves out none.
func electorateOf(in Inputs, without string) electorate {
	var e electorate
	for _, m := range in.Machines {
		if m.Name != without && m.votes() {
			e.add(m.Name, m.etcdState(in.Now) == etcdUp && !m.disrupted(in.Now) && !m.changing())
		}
	}
	for _, s := range in.Strangers {
		if s.Membership == MemberVoter || s.Membership == MemberUnknown {
			e.add("the Node "+s.Node, s.etcdState(in.Now) == etcdUp)
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

// spares says why a voter cannot be away for a while; zero if it can. etcd needs its quorum without it; one or two members have none to
// spare, and then all others must be up, since nothing is won by waiting.
func spares(in Inputs, m Machine) Wait {
	if !m.votes() || m.etcdState(in.Now) == etcdDown {
		return Wait{}
	}
	others := electorateOf(in, m.Name)
	voters := len(others.voters) + 1
	if others.up() >= min(quorum(voters), voters-1) {
		return Wait{}
	}
	return Wait{ReasonWaitingForQuorum, fmt.Sprintf("Waiting for %s to be up: while %s changes, %s", list(others.down), m.Name, ofVoters(others.up(), voters))}
}

// ofVoters puts a number of members that are up against what is needed.
func ofVoters(up, voters int) string {
	return fmt.Sprintf("only %d of etcd's %d voting members are up, and %d must be", up, voters, quorum(voters))
}
