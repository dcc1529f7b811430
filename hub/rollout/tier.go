package rollout

import (
	"slices"
	"strconv"
	"strings"
)

// tier is a group of machines that come one group after another, since a kubelet must not be newer than the API server that it talks to, nor
// that than etcd.
type tier struct {
	// title names the machines of the tier in messages.
	title string
	// turn is what a machine of the tier says while those before it have to come first.
	turn  string
	has   func(Machine) bool
	group group
}

// group is a set of machines that share one limit of how many may be unavailable at a time.
type group int

const (
	etcdGroup group = iota
	controlPlaneGroup
	workerGroup
	groups
)

var tiers = []tier{
	{"first etcd node", "", func(m Machine) bool { return m.Etcd && m.Init }, etcdGroup},
	{"etcd node", "Waiting for the first etcd node to be ready first", func(m Machine) bool { return m.Etcd && !m.Init }, etcdGroup},
	{"control plane node", "Waiting for the etcd nodes to be ready first", func(m Machine) bool { return m.ControlPlane && !m.Etcd }, controlPlaneGroup},
	{"worker node", "Waiting for the etcd and control plane nodes to be ready first", func(m Machine) bool { return !m.Server() }, workerGroup},
}

// tierOf returns the index of a machine's tier. Every machine is in exactly one.
func tierOf(m Machine) int {
	return slices.IndexFunc(tiers, func(t tier) bool { return t.has(m) })
}

func groupOf(m Machine) group { return tiers[tierOf(m)].group }

// title names the machines of a group in messages.
func (g group) title() string {
	return [groups]string{"etcd node", "control plane node", "worker node"}[g]
}

// busy is what a machine of a group says while others of the group keep it from changing.
func (g group) busy() string {
	return [groups]string{
		"Waiting for other etcd nodes: etcd takes one change at a time",
		"Waiting for other control plane nodes: upgradeStrategy.controlPlaneConcurrency limits how many may be unavailable at a time",
		"Waiting for other worker nodes: upgradeStrategy.workerConcurrency limits how many may be unavailable at a time",
	}[g]
}

// limit is how many of a group's machines may be unavailable at a time. No number is ever right for etcd but one.
func (g group) limit(in Inputs, machines int) int {
	switch g {
	case controlPlaneGroup:
		return allowed(in.ControlPlaneConcurrency, machines)
	case workerGroup:
		return allowed(in.WorkerConcurrency, machines)
	}
	return 1
}

// allowed says how many machines of a tier may be unavailable at a time: "" means 1, "0" all, "25%" that part rounded up. What is not of
// this form counts as 1, the safest.
func allowed(concurrency string, machines int) int {
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
