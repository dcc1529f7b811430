package rollout

import (
	"strings"
	"testing"
)

// leaving is a member of etcd whose machine Cluster API wants to have removed now.
func leaving(name string) Machine {
	m := member(name, "ec")
	m.Deleting, m.Removal = true, RemovalDue
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
	dead := func(m *Machine) { m.Node, m.MemberHealth = NodeLost, MemberUnhealthy }
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
		"one of three":               {others: []Machine{member("b"), member("c")}},
		"one of two":                 {others: []Machine{member("b")}},
		"the only one":               {reason: ReasonWaitingForQuorum, message: "a is the only voting etcd member"},
		"the only one of none":       {a: func(m *Machine) { m.JoinURL = "" }},
		"one that is no member":      {a: func(m *Machine) { m.Membership = MemberNone }, others: []Machine{member("b", asked)}},
		"one that was asked already": {a: asked, others: []Machine{member("b", restarting)}},
		"a learner":                  {a: learning, others: []Machine{member("b")}},
		"one that nobody knows": {a: func(m *Machine) { m.Node, m.Membership = NodeUnknown, MemberUnknown }, others: []Machine{member("b")},
			reason: ReasonWaitingForConnection, message: "a connection to the cluster"},
		"a dead one": {a: dead, others: []Machine{member("b"), member("c")}},
		"beside a dead one": {others: []Machine{member("b"), member("c", dead)}, reason: ReasonWaitingForQuorum,
			message: "Waiting for c to be up: without a, only 1 of 2 voting etcd members are up, 2 required"},
		"beside a dead one of five": {others: []Machine{member("b"), member("c", dead), member("d"), member("e")}},
		"a newcomer that is dead, beside one": {a: func(m *Machine) {
			m.Membership, m.MemberHealth, m.Node, m.JoinURL, m.JoinedTo = MemberUnknown, MemberUnhealthy, NodeLost, "", "https://b"
		}, others: []Machine{member("b")}},
		"beside one that is silent": {others: []Machine{member("b"), member("c", func(m *Machine) { m.Node = NodeLost })},
			reason: ReasonWaitingForQuorum, message: "Waiting for c to be up"},
		"beside one without a network plugin": {others: []Machine{member("b"), member("c", func(m *Machine) { m.Node = NodeNotReady })}},
		"when the quorum is lost": {others: []Machine{member("b", dead), member("c", dead)}, reason: ReasonWaitingForQuorum,
			message: "Waiting for b, c to be up, or for the cluster to be restored from a snapshot"},
		"beside one that has no Machine": {others: []Machine{member("b")},
			orphaned: []Member{{Node: "old", State: NodeNotReady, Membership: MemberVoter}}, reason: ReasonWaitingForQuorum, message: "Node old"},
		"while another restarts": {others: []Machine{member("b", restarting), member("c")}, reason: ReasonWaitingForOthers,
			message: "Waiting for b, which is being changed: etcd allows one change at a time"},
		"while another joins": {others: []Machine{member("b"), member("c", learning)}, reason: ReasonWaitingForOthers,
			message: "Waiting for c, which is not a voting member of etcd yet"},
		"while another is drained": {others: []Machine{member("b", drained), member("c")}},
		"while another goes": {others: []Machine{member("b"), member("c", due, asked)}, reason: ReasonWaitingForOthers,
			message: "Waiting for c, which is being removed from etcd"},
		"before another that is to go":   {others: []Machine{member("b", due), member("c")}},
		"after a dead one that is to go": {others: []Machine{member("b", due, dead), member("c")}, reason: ReasonWaitingForQuorum},
		"after a dead one of four": {others: []Machine{member("b", due, dead), member("c"), member("d"), member("e")},
			reason:  ReasonWaitingForOthers,
			message: "Waiting for b, which is about to be removed from etcd"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := leaving("a")
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

func TestElectOnlyVoters(t *testing.T) {
	going := member("a", "ec")
	going.Init, going.Deleting = true, true
	learner := fresh("b", "ec")
	learner.Change, learner.Progress, learner.Node = ChangeNone, ProgressApplied, NodeReady
	learner.Membership, learner.JoinedTo = MemberLearner, "https://a"
	dead := member("c", "ec")
	dead.Node = NodeLost
	old := member("d", "ec")
	old.Membership = MemberNone
	unseen := member("e", "ec")
	unseen.Node, unseen.Membership = NodeUnknown, MemberUnknown
	tests := map[string]struct {
		machines []Machine
		want     string
		reason   string
	}{
		"the learner does not follow":                 {machines: []Machine{going, learner}, want: "a"},
		"the dead one does not follow one that is up": {machines: []Machine{going, dead}, want: "a"},
		"one that is up follows before a dead one":    {machines: []Machine{dead, member("z", "ec")}, want: "z"},
		"a dead one follows where there is no other":  {machines: []Machine{learner, dead}, want: "c"},
		"a removed member does not follow":            {machines: []Machine{old}, reason: ReasonEtcdLost},
		"a learner alone is waited for":               {machines: []Machine{learner}, reason: ReasonWaitingForInitNode},
		"one that others have joined follows unseen":  {machines: []Machine{unseen}, want: "e"},
		"a new member does not follow":                {machines: []Machine{fresh("f", "ec")}, reason: ReasonEtcdLost},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Elect(tc.machines, "", true); got.Init != tc.want || got.Reason != tc.reason {
				t.Errorf("got %+v", got)
			}
		})
	}
}
