package rollout

// Election says which machine starts the cluster.
type Election struct {
	// Init is the name of the init node; empty if there is none yet.
	Init string
	// Reason and Message say why there is none.
	Reason, Message string
}

// Elect chooses the init node: the machine that starts the cluster and that all others join first. The present one is kept while it can
// be. designated names a machine by its ID, and then no other is ever chosen. bootstrapped is set once a cluster has been started: from
// then on only a machine that is part of it may follow, since any other would start a second cluster.
func Elect(machines []Machine, designated string, bootstrapped bool) Election {
	if designated != "" {
		return electDesignated(machines, designated)
	}
	var candidates, members []Machine
	for _, m := range machines {
		if !m.Etcd || m.Deleting || !m.Identity || m.Unusable != "" {
			continue
		}
		candidates = append(candidates, m)
		if m.JoinURL != "" {
			members = append(members, m)
		}
	}
	if current := initNode(candidates); current != nil && (current.JoinURL != "" || len(members) == 0) {
		return Election{Init: current.Name}
	}
	switch {
	case len(members) > 0:
		return Election{Init: members[0].Name}
	case bootstrapped:
		return Election{Reason: ReasonEtcdLost, Message: "No etcd machine that was part of the cluster is left. " +
			"Restore the cluster from an etcd snapshot, or delete it and create it again"}
	case len(candidates) > 0:
		return Election{Init: candidates[0].Name}
	}
	return Election{Reason: ReasonWaitingForInitNode, Message: noCandidate(machines)}
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
