// Package preview reports what a change of a cluster's specification would do to its machines, in text and values that can be shown:
// whatever may be a secret is hidden. It is pure: it compares plans that others have rendered, and asks rollout for the order of the
// changes.
package preview

import (
	"cmp"
	"slices"

	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// Impact is the effect of a change on a machine.
type Impact string

// The impacts, from the least.
const (
	// ImpactNone changes nothing that runs.
	ImpactNone Impact = "none"
	// ImpactRestart restarts the distribution without effect on workloads.
	ImpactRestart Impact = "restart"
	// ImpactDrain restarts it in a way that workloads may notice: the node is drained first if the cluster's upgrade strategy asks for it.
	ImpactDrain Impact = "drain"
	// ImpactInstall is a machine's first plan.
	ImpactInstall Impact = "install"
	// ImpactReplace deletes the machine and makes another.
	ImpactReplace Impact = "replace"
	// ImpactRemove deletes the machine.
	ImpactRemove Impact = "remove"
)

var impacts = []Impact{ImpactNone, ImpactRestart, ImpactDrain, ImpactInstall, ImpactReplace, ImpactRemove}

func impactOf(c rollout.Change) Impact {
	switch c {
	case rollout.ChangeRestart:
		return ImpactRestart
	case rollout.ChangeDrain:
		return ImpactDrain
	case rollout.ChangeFirst:
		return ImpactInstall
	}
	return ImpactNone
}

// Report is the answer to "what would happen?".
type Report struct {
	// Cluster is namespace/name.
	Cluster string `json:"cluster"`
	// Changes is true if anything would change.
	Changes bool `json:"changes"`
	// Impact is the greatest impact on any machine.
	Impact Impact `json:"impact"`
	// Waiting says why no plans can be rendered; empty if they can.
	Waiting string `json:"waiting,omitempty"`
	// Warnings name what would be ignored or should be reviewed.
	Warnings []string `json:"warnings,omitempty"`
	// Problems keep plans from being delivered.
	Problems []string `json:"problems,omitempty"`
	// Pools are the machine pools that change.
	Pools []Pool `json:"pools,omitempty"`
	// Machines are all machines of the cluster, by name.
	Machines []Machine `json:"machines"`
	// Order is which machines are changed together, one group after the other. It counts on every change to succeed.
	Order [][]string `json:"order,omitempty"`
}

// Pool is a machine pool that changes.
type Pool struct {
	// Name of the pool.
	Name string `json:"name"`
	// Impact on its machines.
	Impact Impact `json:"impact"`
	// Notes say what changes.
	Notes []string `json:"notes"`
}

// Machine is a machine and what would change on it.
type Machine struct {
	// Name of the Machine.
	Name string `json:"name"`
	// Pool is the name of its machine pool; empty for a custom machine.
	Pool string `json:"pool,omitempty"`
	// Roles are etcd, control-plane and worker.
	Roles []string `json:"roles,omitempty"`
	// Impact of all changes together.
	Impact Impact `json:"impact"`
	// Problem says why its plan cannot be delivered.
	Problem string `json:"problem,omitempty"`
	// Changes are those of its plan, and of the labels and taints of its Node.
	Changes []Change `json:"changes,omitempty"`
}

// Change is one difference.
type Change struct {
	// What is file, instruction, periodic instruction, probe, label or taint.
	What string `json:"what"`
	// Name is the path of a file, key=value of a label or taint, otherwise the name.
	Name string `json:"name"`
	// Kind is add, change or remove.
	Kind Kind `json:"kind"`
	// Diff is the difference in the unified format, without secrets.
	Diff string `json:"diff,omitempty"`
}

// Kind is what happens to something.
type Kind string

// The kinds of changes.
const (
	// Add creates it.
	Add Kind = "add"
	// Modify changes it.
	Modify Kind = "change"
	// Remove deletes it.
	Remove Kind = "remove"
)

// Subject is a machine to be compared.
type Subject struct {
	// Name of the Machine.
	Name string
	// Pool is the name of its machine pool; empty for a custom machine.
	Pool string
	// Before is the delivered plan.
	Before plans.Plan
	// After is the plan that would be delivered.
	After plans.Plan
	// State is what rollout knows of the machine, with the change that After is.
	State rollout.Machine
	// Labels of its Node.
	Labels Pair
	// Taints of its Node, by key and effect.
	Taints Pair
}

// Pair is a map before and after a change.
type Pair struct {
	// Before the change.
	Before map[string]string
	// After the change.
	After map[string]string
}

// Machines compares machines. Where a pool is replaced or removed, its machines are.
func Machines(subjects []Subject, pools []Pool, mask *Mask) []Machine {
	out := make([]Machine, 0, len(subjects))
	for _, s := range subjects {
		m := Machine{
			Name: s.Name, Pool: s.Pool, Roles: roles(s.State), Impact: impactOf(s.State.Change), Problem: s.State.Problem,
			Changes: slices.Concat(mask.Plans(s.Before, s.After), pairs("label", s.Labels), pairs("taint", s.Taints)),
		}
		if i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == s.Pool && s.Pool != "" }); i >= 0 {
			m.Impact = worst(m.Impact, pools[i].Impact)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Finish sums up.
func (r *Report) Finish() {
	r.Impact = ImpactNone
	r.Changes = len(r.Pools) > 0
	for _, m := range r.Machines {
		r.Impact = worst(r.Impact, m.Impact)
		r.Changes = r.Changes || m.Impact != ImpactNone || len(m.Changes) > 0
	}
	for _, p := range r.Pools {
		r.Impact = worst(r.Impact, p.Impact)
	}
}

func worst(a, b Impact) Impact {
	return impacts[max(slices.Index(impacts, a), slices.Index(impacts, b))]
}

func roles(m rollout.Machine) []string {
	var out []string
	for _, role := range []struct {
		name string
		has  bool
	}{{"etcd", m.Etcd}, {"control-plane", m.ControlPlane}, {"worker", m.Worker}} {
		if role.has {
			out = append(out, role.name)
		}
	}
	return out
}
