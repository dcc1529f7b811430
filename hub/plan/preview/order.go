package preview

import (
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/hub/plan/rollout"
)

// Order says which machines are changed together, one group after the other: it asks rollout again and again, as if each change that it
// allows succeeded before the next question. It assumes that current problems of machines are resolved.
func Order(in rollout.Inputs) [][]string {
	in = resolved(in)
	var order [][]string
	// Each machine is drained, changed and taken back, so that as many questions are enough.
	for range 3*len(in.Machines) + 1 {
		group, moved := step(&in)
		if len(group) > 0 {
			order = append(order, group)
		}
		if !moved {
			break
		}
	}
	return order
}

// step carries out what rollout decides, and reports whether that was anything. The machines are in the order of their names, as decisions
// are: a search for each machine, for each of a thousand that change one after the other, takes many seconds.
func step(in *rollout.Inputs) (group []string, moved bool) {
	for i, d := range rollout.Decide(*in).Decisions {
		m := &in.Machines[i]
		switch {
		case d.Deliver:
			group = append(group, m.Name)
			m.Change, m.Version = rollout.ChangeNone, m.WantVersion
			succeed(m)
		case d.Drain != "":
			m.Drain = rollout.Drain{Requested: d.Drain, Done: d.Drain}
		case d.Uncordon:
			m.Drain = rollout.Drain{}
		default:
			continue
		}
		moved = true
	}
	return group, moved
}

// resolved is a copy of the inputs in which nothing is wrong but that machines do not have their plans yet. Its machines are in the order
// of their names.
func resolved(in rollout.Inputs) rollout.Inputs {
	in.Machines = slices.DeleteFunc(slices.Clone(in.Machines),
		func(m rollout.Machine) bool { return m.Deleting || !m.HasPlanSecret || m.Problem != "" })
	slices.SortFunc(in.Machines, func(a, b rollout.Machine) int { return strings.Compare(a.Name, b.Name) })
	in.OrphanedMembers, in.Blocked = nil, rollout.Wait{}
	for i := range in.Machines {
		m := &in.Machines[i]
		m.Unusable, m.Drain, m.Removal, m.Failure = "", rollout.Drain{}, rollout.RemovalNone, ""
		if m.Change != rollout.ChangeFirst {
			succeed(m)
		}
	}
	return in
}

// succeed is a machine that works with the plan it was given.
func succeed(m *rollout.Machine) {
	m.Progress, m.Underway, m.CheckedIn, m.ProbesPassed = rollout.ProgressApplied, rollout.ChangeNone, true, true
	m.Unhealthy, m.HealthUnknown, m.LastSeen, m.MemberHealth = nil, nil, time.Time{}, rollout.MemberHealthUnknown
	m.ProbesPassedAt = time.Time{}
	m.Node, m.Membership = rollout.NodeReady, rollout.MemberNone
	if m.Etcd {
		m.Membership, m.EtcdProbe = rollout.MemberVoter, rollout.ProbeHealthy
	}
	if m.Server() && m.JoinURL == "" {
		m.JoinURL = "https://" + m.Name
	}
	if m.Change == rollout.ChangeNone {
		m.Version = m.WantVersion
	}
}
