package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tier is a group of machines that are changed together. Tiers come one after another, since a kubelet must not be newer than the API
// server that it talks to, nor that than etcd.
type tier struct {
	// title names the machines of the tier in messages.
	title string
	has   func(Machine) bool
	// concurrency is how many machines of the tier may be unavailable at the same time; 0 means all.
	concurrency func(Inputs) string
}

var tiers = []tier{
	{"first etcd node", func(m Machine) bool { return m.Etcd && m.Init }, one},
	{"etcd node", func(m Machine) bool { return m.Etcd && !m.Init }, one},
	{"control plane node", func(m Machine) bool { return m.ControlPlane && !m.Etcd }, func(in Inputs) string { return in.ControlPlaneConcurrency }},
	{"worker node", func(m Machine) bool { return !m.Server() }, func(in Inputs) string { return in.WorkerConcurrency }},
}

func one(Inputs) string { return "1" }

// tierOf returns the index of a machine's tier. Every machine is in exactly one.
func tierOf(m Machine) int {
	return slices.IndexFunc(tiers, func(t tier) bool { return t.has(m) })
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

// list names machines, at most three of them.
func list(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}
