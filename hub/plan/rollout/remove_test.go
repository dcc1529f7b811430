package rollout

import (
	"strings"
	"testing"
	"time"
)

// deletedMember is a deleted machine whose pre-terminate hook is due.
func deletedMember(name string) Machine {
	m := member(name, "ec")
	m.Deleting, m.Removal = true, RemovalDue
	return m
}

// freshWithoutInfrastructure is a machine that was created a while before the zero time.
func freshWithoutInfrastructure(name string, age time.Duration) Machine {
	m := fresh(name, "ec")
	m.Unusable, m.Created = "has no infrastructure yet", time.Time{}.Add(-age)
	return m
}

// deletedFresh is a deleted machine that was not given a plan yet.
func deletedFresh(name string) Machine {
	m := fresh(name, "ec")
	m.Deleting = true
	return m
}

func TestCheckRemoval(t *testing.T) {
	member := func(name string, change ...func(*Machine)) Machine {
		m := member(name, "ec")
		for _, c := range change {
			c(&m)
		}
		return m
	}
	down := func(m *Machine) { m.Node, m.MemberHealth = NodeLost, MemberUnhealthy }
	restarting := func(m *Machine) { m.Progress, m.Underway = ProgressApplying, ChangeRestart }
	learning := func(m *Machine) { m.Membership, m.JoinURL = MemberLearner, "" }
	drained := func(m *Machine) { m.Drain.Requested = "{}" }
	asked := func(m *Machine) { m.Removal = RemovalRequested }
	due := func(m *Machine) { m.Deleting, m.Removal = true, RemovalDue }
	tests := map[string]struct {
		others   []Machine
		orphaned []Member
		a        func(*Machine)
		reason   string
		message  string
	}{
		"one of three":                   {others: []Machine{member("b"), member("c")}},
		"one of two":                     {others: []Machine{member("b")}},
		"the only one":                   {reason: ReasonWaitingForQuorum, message: "a is the only voting etcd member"},
		"the only machine, not joined":   {a: func(m *Machine) { m.JoinURL = "" }},
		"a machine that is not a member": {a: func(m *Machine) { m.Membership = MemberNone }, others: []Machine{member("b", asked)}},
		"removal already requested":      {a: asked, others: []Machine{member("b", restarting)}},
		"a learner":                      {a: learning, others: []Machine{member("b")}},
		"unknown membership": {a: func(m *Machine) { m.Node, m.Membership = NodeUnknown, MemberUnknown }, others: []Machine{member("b")},
			reason: ReasonWaitingForConnection, message: "a connection to the cluster"},
		"a member that is down": {a: down, others: []Machine{member("b"), member("c")}},
		"with another of three down": {others: []Machine{member("b"), member("c", down)}, reason: ReasonWaitingForQuorum,
			message: "Waiting for c to be up: without a, only 1 of 2 voting etcd members are up, 2 required"},
		"with another of five down": {others: []Machine{member("b"), member("c", down), member("d"), member("e")}},
		"a new member that is down, one other": {a: func(m *Machine) {
			m.Membership, m.MemberHealth, m.Node, m.JoinURL, m.JoinedTo = MemberUnknown, MemberUnhealthy, NodeLost, "", "https://b"
		}, others: []Machine{member("b")}},
		"with a Node that is lost": {others: []Machine{member("b"), member("c", func(m *Machine) { m.Node = NodeLost })},
			reason: ReasonWaitingForQuorum, message: "Waiting for c to be up"},
		"with a Node without network plugin": {others: []Machine{member("b"), member("c", func(m *Machine) { m.Node = NodeNotReady })}},
		"quorum lost": {others: []Machine{member("b", down), member("c", down)}, reason: ReasonWaitingForQuorum,
			message: "Waiting for b, c to be up, or for the cluster to be restored from a snapshot"},
		"with an orphaned member": {others: []Machine{member("b")},
			orphaned: []Member{{Node: "old", State: NodeNotReady, Membership: MemberVoter}}, reason: ReasonWaitingForQuorum, message: "Node old"},
		"while another restarts": {others: []Machine{member("b", restarting), member("c")}, reason: ReasonWaitingForOthers,
			message: "Waiting for b, which is being changed: etcd allows one change at a time"},
		"while another joins": {others: []Machine{member("b"), member("c", learning)}, reason: ReasonWaitingForOthers,
			message: "Waiting for c, which is not a voting member of etcd yet"},
		"one of two, before a new one joins": {others: []Machine{member("b"), fresh("x", "ec")}, reason: ReasonWaitingForQuorum,
			message: "Waiting for x to join etcd, or to be deleted: without a, b would be the only voting etcd member"},
		"one of two, before one that has just been created": {others: []Machine{member("b"), freshWithoutInfrastructure("x", 5*time.Minute)},
			reason: ReasonWaitingForQuorum, message: "Waiting for x to join etcd"},
		"one of two, beside a new one that is deleted": {others: []Machine{member("b"), deletedFresh("x")}},
		"one of two, beside one that may never come":   {others: []Machine{member("b"), freshWithoutInfrastructure("x", time.Hour)}},
		"one of two, beside a new worker":              {others: []Machine{member("b"), fresh("x", "w")}},
		"one of three, before a new one joins":         {others: []Machine{member("b"), member("c"), fresh("x", "ec")}},
		"while another is drained":                     {others: []Machine{member("b", drained), member("c")}},
		"while another is removed": {others: []Machine{member("b"), member("c", due, asked)}, reason: ReasonWaitingForOthers,
			message: "Waiting for c, which is being removed from etcd"},
		"before another deleted member that is up":  {others: []Machine{member("b", due), member("c")}},
		"after another deleted member that is down": {others: []Machine{member("b", due, down), member("c")}, reason: ReasonWaitingForQuorum},
		"after another deleted member of four that is down": {others: []Machine{member("b", due, down), member("c"), member("d"), member("e")},
			reason:  ReasonWaitingForOthers,
			message: "Waiting for b, which is about to be removed from etcd"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := deletedMember("a")
			if tc.a != nil {
				tc.a(&a)
			}
			got := CheckRemoval(Inputs{Machines: append([]Machine{a}, tc.others...), OrphanedMembers: tc.orphaned}, "a")
			if got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if got := CheckRemoval(Inputs{}, "gone"); got != (Wait{}) {
		t.Errorf("got %+v", got)
	}
}

func TestElectSuccessor(t *testing.T) {
	deleted := member("a", "ec")
	deleted.Init, deleted.Deleting = true, true
	learner := fresh("b", "ec")
	learner.Change, learner.Progress, learner.Node = ChangeNone, ProgressApplied, NodeReady
	learner.Membership, learner.JoinedTo = MemberLearner, "https://a"
	down := member("c", "ec")
	down.Node = NodeLost
	removed := member("d", "ec")
	removed.Membership = MemberNone
	unknown := member("e", "ec")
	unknown.Node, unknown.Membership = NodeUnknown, MemberUnknown
	tests := map[string]struct {
		machines []Machine
		want     string
		reason   string
	}{
		"init node kept instead of a learner":             {machines: []Machine{deleted, learner}, want: "a"},
		"init node kept instead of a member that is down": {machines: []Machine{deleted, down}, want: "a"},
		"member that is up before one that is down":       {machines: []Machine{down, member("z", "ec")}, want: "z"},
		"member that is down before a learner":            {machines: []Machine{learner, down}, want: "c"},
		"removed member":                                  {machines: []Machine{removed}, reason: ReasonEtcdLost},
		"learner only":                                    {machines: []Machine{learner}, reason: ReasonWaitingForInitNode},
		"member with a join URL and unknown membership":   {machines: []Machine{unknown}, want: "e"},
		"new machine only":                                {machines: []Machine{fresh("f", "ec")}, reason: ReasonEtcdLost},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Elect(tc.machines, "", true); got.Init != tc.want || got.Reason != tc.reason {
				t.Errorf("got %+v", got)
			}
		})
	}
}
