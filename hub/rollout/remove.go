package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MayRemove says why the member of a machine that is being deleted cannot be removed from etcd now; zero if it can. Of the inputs, it looks
// at the machines and the strangers. The caller makes sure that it has seen its own last writes and those of plans: what is on its way must
// be in the inputs.
func MayRemove(in Inputs, name string) Wait {
	i := slices.IndexFunc(in.Machines, func(m Machine) bool { return m.Name == name })
	if i < 0 || in.Machines[i].Membership == MemberNone || in.Machines[i].Removal == RemovalAsked {
		return Wait{}
	}
	seen := reached(in.Machines)
	for _, m := range in.Machines {
		// A drain does nothing to etcd, and what comes after it waits for the removal. A machine that goes too is not waited for to finish
		// anything but its own removal.
		if what := m.etcdChange(seen); what != "" && what != etcdDraining && m.Name != name && (!m.Deleting || m.Removal == RemovalAsked) {
			return Wait{ReasonWaitingForOthers, fmt.Sprintf("Waiting for %s, which %s: etcd takes one change at a time", m.Name, what)}
		}
	}
	if w := losesQuorum(in, in.Machines[i]); w != (Wait{}) {
		return w
	}
	if next := nextRemoval(in); next != "" && next != name && in.Machines[i].Removal == RemovalDue {
		return Wait{ReasonWaitingForOthers, fmt.Sprintf("Waiting for %s, which %s: etcd takes one change at a time", next, etcdLeaving)}
	}
	return Wait{}
}

// nextRemoval is the machine that etcd can do without first; empty if there is none. One that is down goes before one that is up, since
// it takes no vote away that counts. One at which servers have joined the cluster is left out: they are given another address first, and
// must not wait for the removal to get it.
func nextRemoval(in Inputs) string {
	var due []Machine
	for _, m := range in.Machines {
		if m.Removal == RemovalDue && m.Membership != MemberNone && !joinedBy(in, m) && losesQuorum(in, m) == (Wait{}) {
			due = append(due, m)
		}
	}
	if len(due) == 0 {
		return ""
	}
	return slices.MinFunc(due, func(a, b Machine) int {
		return cmp.Or(order(!a.Lost(), !b.Lost()), strings.Compare(a.Name, b.Name))
	}).Name
}

// joinedBy tells whether servers that stay have joined the cluster at a machine. One that is down is of no use to them as an address.
func joinedBy(in Inputs, m Machine) bool {
	return !m.Lost() && m.JoinURL != "" && slices.ContainsFunc(in.Machines, func(other Machine) bool {
		return other.Server() && !other.Deleting && other.Name != m.Name && other.JoinedTo == m.JoinURL
	})
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// losesQuorum says why etcd could not do without a member; zero if it can. etcd removes a member only while its quorum is there, and has to
// have one without it.
func losesQuorum(in Inputs, m Machine) Wait {
	if m.Membership == MemberUnknown && m.Node == NodeUnknown {
		return Wait{ReasonWaitingForConnection, "Waiting for the connection to the API of the cluster, which tells what part the machine has in etcd"}
	}
	all, rest := electorateOf(in, ""), electorateOf(in, m.Name)
	// Of a newcomer that does not answer, nobody knows whether it votes; but that this was said means that there is a quorum.
	newcomer := m.Membership == MemberUnknown && m.MemberHealth == MemberUnhealthy && m.JoinURL == ""
	switch {
	case all.up() < quorum(len(all.voters)) && !newcomer:
		return Wait{ReasonWaitingForQuorum, fmt.Sprintf("Waiting for %s to be up, or for the cluster to be restored from a snapshot: etcd cannot remove a member while %s",
			list(all.down), ofVoters(all.up(), len(all.voters)))}
	case !m.votes(), len(rest.voters) == 0 && m.JoinURL == "":
		// It takes no vote away, or nothing that was ever a cluster to others.
		return Wait{}
	case len(rest.voters) == 0:
		return Wait{ReasonWaitingForQuorum, m.Name + " is the only voting member of etcd, so the cluster's data would go with it. Add another etcd machine first, or delete the cluster"}
	case rest.up() < quorum(len(rest.voters)):
		return Wait{ReasonWaitingForQuorum, fmt.Sprintf("Waiting for %s to be up: without %s, %s", list(rest.down), m.Name, ofVoters(rest.up(), len(rest.voters)))}
	}
	return Wait{}
}
