package rollout

import (
	"strconv"
	"strings"
)

// tier is a set of machines. Tiers change one after the other: a kubelet must not be newer than the API server, nor that than etcd
// (https://kubernetes.io/releases/version-skew-policy/).
type tier struct {
	// title is the singular noun for a machine of the tier in messages.
	title string
	// waiting is the message of a machine of the tier while earlier tiers have to change first.
	waiting string
	group   group
}

// group is a set of machines that share one limit on unavailable machines.
type group int

const (
	etcdGroup group = iota
	controlPlaneGroup
	workerGroup
	groups
)

var tiers = []tier{
	{"first etcd node", "", etcdGroup},
	{"etcd node", "Waiting for the first etcd node to be ready first", etcdGroup},
	{"control plane node", "Waiting for the etcd nodes to be ready first", controlPlaneGroup},
	{"worker node", "Waiting for the etcd and control plane nodes to be ready first", workerGroup},
}

// tierOf returns the index of a machine's tier. Every machine is in exactly one.
func tierOf(m *Machine) int {
	switch {
	case m.Etcd && m.Init:
		return 0
	case m.Etcd:
		return 1
	case m.ControlPlane:
		return 2
	}
	return 3
}

func groupOf(m *Machine) group { return tiers[tierOf(m)].group }

// title is the singular noun for a machine of the group in messages.
func (g group) title() string {
	return [groups]string{"etcd node", "control plane node", "worker node"}[g]
}

// limitMessage is the message of a machine that waits for others of its group. It names no machines: see Decision.Message.
func (g group) limitMessage() string {
	return [groups]string{
		"Waiting for other etcd nodes: etcd allows one change at a time",
		"Waiting for other control plane nodes: upgradeStrategy.controlPlaneConcurrency limits unavailable nodes",
		"Waiting for other worker nodes: upgradeStrategy.workerConcurrency limits unavailable nodes",
	}[g]
}

// limitedBy is what limits the unavailable machines of the group, in messages.
func (g group) limitedBy() string {
	return [groups]string{"etcd", "upgradeStrategy.controlPlaneConcurrency", "upgradeStrategy.workerConcurrency"}[g]
}

// limit is how many machines of a group of that size may be unavailable at a time. For etcd it is always one.
func (g group) limit(in Inputs, size int) int {
	switch g {
	case controlPlaneGroup:
		return MaxUnavailable(in.ControlPlaneConcurrency, size)
	case workerGroup:
		return MaxUnavailable(in.WorkerConcurrency, size)
	}
	return 1
}

// MaxUnavailable resolves a concurrency of an upgrade strategy for a number of machines: "" is 1, "0" is all, "25%" is that share rounded
// up. Anything else is 1, the safest.
func MaxUnavailable(concurrency string, machines int) int {
	text, percent := strings.CutSuffix(concurrency, "%")
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0:
		return 1
	case n == 0:
		return machines
	case percent:
		return (machines*n + 99) / 100
	}
	return n
}

// missingRoles says which roles no machine has; zero if none is missing. A new cluster needs a machine of each role before any plan is
// delivered; one that was bootstrapped needs no worker.
func missingRoles(in Inputs) Wait {
	var missing []string
	for _, role := range []struct {
		name     string
		optional bool
		has      func(*Machine) bool
	}{
		{"etcd", false, func(m *Machine) bool { return m.Etcd }},
		{"control plane", false, func(m *Machine) bool { return m.ControlPlane }},
		{"worker", in.Bootstrapped, func(m *Machine) bool { return m.Worker }},
	} {
		if !role.optional && !anyMachine(in.Machines, func(m *Machine) bool { return !m.Deleting && role.has(m) }) {
			missing = append(missing, role.name)
		}
	}
	if len(missing) == 0 {
		return Wait{}
	}
	text := missing[len(missing)-1]
	if first := missing[:len(missing)-1]; len(first) > 0 {
		text = strings.Join(first, ", ") + " or " + text
	}
	return Wait{Reason: ReasonWaitingForMachines, Message: "Waiting for machines to be registered: none has the role " + text}
}
