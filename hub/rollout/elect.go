package rollout

import (
	"cmp"
	"slices"
	"strings"
)

// Election says which machine starts the cluster.
type Election struct {
	// Init is the name of the init node; empty if there is none yet.
	Init string
	// Reason and Message say why there is none.
	Reason, Message string
}

// Elect chooses the init node: the machine that starts the cluster and that all others join first. The present one is kept while it can
// be. designated names a machine by its ID, and then no other is ever chosen. bootstrapped is set once a cluster has been started: from
// then on only a machine that has its data may follow, since any other would start a second cluster.
func Elect(machines []Machine, designated string, bootstrapped bool) Election {
	if designated != "" {
		return electDesignated(machines, designated)
	}
	machines = slices.SortedFunc(slices.Values(machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	var candidates, voters, live, leaving []Machine
	for _, m := range machines {
		if !m.Etcd || !m.Identity || m.Unusable != "" && m.JoinURL == "" {
			continue
		}
		data := m.hasData(machines)
		switch {
		case m.Deleting && (!data || m.Lost() || !bootstrapped && m.JoinURL == ""):
		case m.Deleting:
			leaving = append(leaving, m)
		default:
			candidates = append(candidates, m)
			if data {
				voters = append(voters, m)
			}
			if data && !m.Lost() {
				live = append(live, m)
			}
		}
	}
	current := initNode(candidates)
	switch {
	case current != nil && keeps(*current, voters, leaving, bootstrapped):
		return Election{Init: current.Name}
	case len(live) > 0:
		return Election{Init: live[0].Name}
	case len(leaving) > 0:
		// It stays until another has the data, and that one has to join it first.
		return Election{Init: cmp.Or(initNode(leaving), &leaving[0]).Name}
	case len(voters) > 0:
		// All are down, and nothing gets on before one is back: one that has the data starts no second cluster.
		return Election{Init: voters[0].Name}
	case bootstrapped:
		return lost(candidates)
	case len(candidates) > 0:
		return Election{Init: candidates[0].Name}
	}
	return Election{Reason: ReasonWaitingForInitNode, Message: noCandidate(machines)}
}

// keeps tells whether the init node stays what it is: it has the data, or nobody has and it is the one that was told to start the cluster.
func keeps(current Machine, voters, leaving []Machine, bootstrapped bool) bool {
	if len(voters) == 0 && len(leaving) == 0 {
		return !bootstrapped || current.Progress != ProgressNone
	}
	return slices.ContainsFunc(voters, func(m Machine) bool { return m.Name == current.Name })
}

// hasData tells whether the machine is a voting member of etcd, so that it has the cluster's data. Where no Node was ever seen, a machine
// that has joined the cluster and works is taken for one: nobody can be asked before the first control plane node is there.
func (m Machine) hasData(machines []Machine) bool {
	switch {
	case m.Membership != MemberUnknown:
		return m.Membership == MemberVoter
	case m.JoinURL != "":
		return true
	}
	return m.JoinedTo != "" && m.Working() && !reached(machines)
}

// lost says what is left to do where no candidate has the cluster's data.
func lost(candidates []Machine) Election {
	for _, m := range candidates {
		if m.Membership == MemberLearner {
			return Election{Reason: ReasonWaitingForInitNode, Message: "Waiting for " + m.Name + " to become a voting member of etcd: no other etcd machine that stays has the cluster's data"}
		}
	}
	return Election{Reason: ReasonEtcdLost, Message: "No etcd machine that was part of the cluster is left. " +
		"Restore the cluster from an etcd snapshot, or delete it and create it again"}
}

func electDesignated(machines []Machine, id string) Election {
	for _, m := range machines {
		if m.ID == id {
			return Election{Init: m.Name}
		}
	}
	return Election{Reason: ReasonWaitingForInitNode, Message: "Waiting for the machine with ID " + id + ", which is to start the cluster, to be registered"}
}

// initNode returns the one machine that is marked; nil for none or several.
func initNode(machines []Machine) *Machine {
	var found *Machine
	for i := range machines {
		if machines[i].Init {
			if found != nil {
				return nil
			}
			found = &machines[i]
		}
	}
	return found
}

func noCandidate(machines []Machine) string {
	for _, m := range machines {
		if m.Etcd && !m.Deleting {
			if m.Unusable != "" {
				return "Waiting for an etcd machine that can start the cluster: " + m.Name + " " + m.Unusable
			}
			return "Waiting for an etcd machine that can start the cluster: " + m.Name + " has no plan Secret yet"
		}
	}
	return "Waiting for an etcd machine that can start the cluster: none is registered"
}
