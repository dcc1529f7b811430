package rollout

import (
	"cmp"
	"hash/crc32"
	"slices"
)

// Election is the choice of the init node: the machine that starts the cluster and that all others join first.
type Election struct {
	// Init is the name of the init node; empty if there is none yet.
	Init string
	// Wait says why there is none; zero if there is one.
	Wait
}

// Elect chooses the init node. The present one is kept while possible. designated is the ID of a machine; if it is not empty, no other
// machine starts the cluster, unless the present init node was given its plan before: it may have started it. bootstrapped is set once the
// cluster has been started: from then on only a machine with its data may be chosen, since any other would start a second cluster. The
// designated machine is preferred then while it is up, and not waited for.
func Elect(machines []Machine, designated string, bootstrapped bool) Election {
	if starting := startingInit(machines); designated != "" && !bootstrapped && starting != nil {
		return Election{Init: starting.Name}
	}
	if designated != "" {
		if e := electDesignated(machines, designated, bootstrapped); e.Init != "" || !bootstrapped {
			return e
		}
	}
	machines = sortedByName(machines)
	var candidates, voters, live, leaving []*Machine
	for i := range machines {
		m := &machines[i]
		if !m.Etcd || !m.HasPlanSecret || m.Unusable != "" && m.JoinURL == "" {
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
	current := initNodeOf(candidates)
	switch {
	case current != nil && staysInit(current, voters, leaving, bootstrapped):
		return Election{Init: current.Name}
	case len(live) > 0:
		return Election{Init: live[0].Name}
	case len(leaving) > 0:
		// It stays until another machine has the data, for which that has to join it first.
		return Election{Init: cmp.Or(initNodeOf(leaving), leaving[0]).Name}
	case len(voters) > 0:
		// All are down, and the cluster waits for one of them: a machine with the data starts no second cluster.
		return Election{Init: voters[0].Name}
	case bootstrapped:
		return noVoter(candidates)
	case len(candidates) > 0:
		return Election{Init: candidates[0].Name}
	}
	return waitForInitNode(noCandidate(machines))
}

// staysInit reports whether the present init node has the data, or no machine has and it is the one that was told to start the cluster.
func staysInit(current *Machine, voters, leaving []*Machine, bootstrapped bool) bool {
	if len(voters) == 0 && len(leaving) == 0 {
		return !bootstrapped || current.Progress != ProgressNone
	}
	return slices.ContainsFunc(voters, func(m *Machine) bool { return m.Name == current.Name })
}

// startingInit is the init node that was given the plan that starts the cluster, unless that has failed; nil for none.
func startingInit(machines []Machine) *Machine {
	m := initNode(machines)
	if m == nil || !m.Etcd || m.Deleting || m.Progress == ProgressNone || m.Progress == ProgressFailed {
		return nil
	}
	return m
}

// hasData reports whether the machine is a voting member of etcd, and so has the cluster's data. Before the first Node was seen, a machine
// that has joined the cluster and works counts as one.
func (m *Machine) hasData(machines []Machine) bool {
	switch {
	case m.Membership != MemberUnknown:
		return m.Membership == MemberVoter
	case m.JoinURL != "":
		return true
	}
	return m.JoinedTo != "" && m.Working() && !nodesSeen(machines)
}

// noVoter is the election where no candidate has the cluster's data.
func noVoter(candidates []*Machine) Election {
	for _, m := range candidates {
		if m.Membership == MemberLearner {
			return waitForInitNode("Waiting for " + m.Name +
				" to become a voting member of etcd: no other remaining etcd machine has the cluster's data")
		}
	}
	return Election{Wait: Wait{ReasonEtcdLost, "No etcd machine with the cluster's data is left. " +
		"Register one if there is none, and restore the cluster from an etcd snapshot with an ETCDSnapshotRestore; or delete and recreate it"}}
}

// electDesignated chooses the machine with an ID if it may be the init node. One that is down becomes it only where no other does: each
// server that restarts would join an address that does not answer.
func electDesignated(machines []Machine, id string, bootstrapped bool) Election {
	why := "not registered yet"
	for i := range machines {
		m := &machines[i]
		switch {
		case m.ID != id:
		case m.Deleting:
			why = m.Name + " is being deleted"
		case !m.Etcd:
			why = m.Name + " does not have the role etcd"
		case !m.HasPlanSecret:
			why = m.Name + " has no plan Secret yet"
		case !bootstrapped || m.hasData(machines) && (m.Init || !m.Lost()):
			return Election{Init: m.Name}
		}
	}
	return waitForInitNode("Waiting for the machine with ID " + id + ", the designated init node: " + why)
}

func waitForInitNode(message string) Election {
	return Election{Wait: Wait{ReasonWaitingForInitNode, message}}
}

// initNode returns the one machine that is marked as init node; nil for none or several.
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

func initNodeOf(machines []*Machine) *Machine {
	var found *Machine
	for _, m := range machines {
		if m.Init {
			if found != nil {
				return nil
			}
			found = m
		}
	}
	return found
}

func noCandidate(machines []Machine) string {
	why := "none is registered"
	if i := slices.IndexFunc(machines, func(m Machine) bool { return m.Etcd && !m.Deleting }); i >= 0 {
		why = machines[i].Name + " " + cmp.Or(machines[i].Unusable, "has no plan Secret yet")
	}
	return "Waiting for an etcd machine that can start the cluster: " + why
}

// JoinURL is where a machine joins the cluster; empty for the init node. While there is nowhere to join, it stays as it was, empty for a
// new machine. Servers join the init node. Workers stay with the control plane machine that they have; otherwise they are spread over those
// of their failure domain, or over all where that has none, by nothing but the worker's UID and the number of servers. All servers of the
// cluster must be among machines; others may be, which takes time only.
func JoinURL(machines []Machine, m Machine, uid string) string {
	if m.Init {
		return ""
	}
	if m.Server() {
		if i := initNode(machines); i != nil {
			return i.JoinURL
		}
		return m.JoinedTo
	}
	var urls, near []string
	for i := range machines {
		server := &machines[i]
		if !server.ControlPlane || server.Deleting || server.JoinURL == "" {
			continue
		}
		urls = append(urls, server.JoinURL)
		if server.FailureDomain == m.FailureDomain {
			near = append(near, server.JoinURL)
		}
	}
	if len(urls) == 0 || slices.Contains(urls, m.JoinedTo) {
		return m.JoinedTo
	}
	if len(near) > 0 {
		urls = near
	}
	slices.Sort(urls)
	return urls[uint64(crc32.ChecksumIEEE([]byte(uid)))*uint64(len(urls))>>32]
}
