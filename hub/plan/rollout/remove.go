package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CheckRemoval says why the etcd member of a machine that is being deleted cannot be removed now; zero if it can. It reads Now, Machines
// and OrphanedMembers of the inputs. The caller makes sure that its own last writes and those of plans are in the inputs.
func CheckRemoval(in Inputs, name string) Wait {
	leaving := findMachine(in.Machines, func(m *Machine) bool { return m.Name == name })
	if leaving == nil || leaving.Membership == MemberNone || leaving.Removal == RemovalRequested {
		return Wait{}
	}
	seen := nodesSeen(in.Machines)
	for i := range in.Machines {
		m := &in.Machines[i]
		// A drain does not affect etcd, and the change after it waits for the removal. Of a machine that is being deleted too, only its own
		// removal matters.
		if activity := m.etcdActivity(seen); activity != "" && activity != etcdDraining && m.Name != name &&
			(!m.Deleting || m.Removal == RemovalRequested) {
			return oneEtcdChange(m.Name, activity)
		}
	}
	if w := removalLosesQuorum(in, leaving); w != (Wait{}) {
		return w
	}
	if next := nextRemoval(in); next != "" && next != name && leaving.Removal == RemovalDue {
		return oneEtcdChange(next, etcdLeaving)
	}
	return Wait{}
}

// oneEtcdChange waits for what a member is going through.
func oneEtcdChange(name string, activity etcdActivity) Wait {
	return Wait{ReasonWaitingForOthers, fmt.Sprintf("Waiting for %s, which %s: etcd allows one change at a time", name, activity)}
}

// nextRemoval is the machine whose member is removed first; empty if there is none. One that is down goes first, since its vote is lost
// already. One by which servers have joined the cluster is left out: they get another address first, which must not wait for the removal.
func nextRemoval(in Inputs) string {
	var due []*Machine
	for i := range in.Machines {
		m := &in.Machines[i]
		if m.Removal == RemovalDue && m.Membership != MemberNone && !usedAsJoinURL(in, m) && removalLosesQuorum(in, m) == (Wait{}) {
			due = append(due, m)
		}
	}
	if len(due) == 0 {
		return ""
	}
	rank := func(m *Machine) int {
		if m.Lost() {
			return 0
		}
		return 1
	}
	return slices.MinFunc(due, func(a, b *Machine) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	}).Name
}

// usedAsJoinURL reports whether servers that stay have joined the cluster at a machine. The address of one that is down is of no use to
// them.
func usedAsJoinURL(in Inputs, m *Machine) bool {
	return !m.Lost() && m.JoinURL != "" && anyMachine(in.Machines, func(other *Machine) bool {
		return other.Server() && !other.Deleting && other.Name != m.Name && other.JoinedTo == m.JoinURL
	})
}

// removalLosesQuorum says why etcd cannot do without a member; zero if it can. etcd removes a member only while it has its quorum, and must
// have one without it.
func removalLosesQuorum(in Inputs, m *Machine) Wait {
	if m.Membership == MemberUnknown && m.Node == NodeUnknown {
		return Wait{ReasonWaitingForConnection, "Waiting for a connection to the cluster's API, to read the machine's etcd membership"}
	}
	all, rest := electorateOf(in, "", false), electorateOf(in, m.Name, false)
	// Whether a new member that does not answer votes is unknown; but that its leader reports so means that there is a quorum.
	unresponsive := m.Membership == MemberUnknown && m.MemberHealth == MemberUnhealthy && m.JoinURL == ""
	message := ""
	switch {
	case all.up() < quorum(len(all.voters)) && !unresponsive:
		message = fmt.Sprintf("Waiting for %s to be up, or for the cluster to be restored from a snapshot: etcd cannot remove a member while %s",
			joinNames(all.down), votersUp(all.up(), len(all.voters)))
	case !m.votes(), len(rest.voters) == 0 && m.JoinURL == "":
		// It takes no vote away, or was never a cluster that others joined.
		return Wait{}
	case len(rest.voters) == 0:
		message = m.Name + " is the only voting etcd member: removing it loses the cluster's data. " +
			"Add another etcd machine first, or delete the cluster"
	case rest.up() < quorum(len(rest.voters)):
		message = fmt.Sprintf("Waiting for %s to be up: without %s, %s", joinNames(rest.down), m.Name, votersUp(rest.up(), len(rest.voters)))
	case len(rest.voters) == 1 && !m.Lost() && len(newMembers(in)) > 0:
		message = fmt.Sprintf("Waiting for %s to join etcd, or to be deleted: without %s, %s would be the only voting etcd member",
			joinNames(newMembers(in)), m.Name, rest.voters[0])
	default:
		return Wait{}
	}
	return Wait{ReasonWaitingForQuorum, message}
}

// infrastructurePatience is for how long after its creation a removal waits for a machine that has no infrastructure yet.
const infrastructurePatience = 20 * time.Minute

// newMembers are the machines that are to join etcd and were not given a plan yet. The others that join are waited for in any case. One
// without infrastructure has it within minutes as a rule, but may never get any: the host may be that of the machine that is removed.
func newMembers(in Inputs) (names []string) {
	for i := range in.Machines {
		m := &in.Machines[i]
		comes := m.HasPlanSecret && m.Unusable == "" || in.Now.Sub(m.Created) < infrastructurePatience
		if m.Etcd && !m.Deleting && m.Progress == ProgressNone && !m.votes() && comes && m.Problem == "" {
			names = append(names, m.Name)
		}
	}
	return names
}
