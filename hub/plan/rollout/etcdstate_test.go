package rollout

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEtcdState(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	tests := map[string]struct {
		node    NodeState
		health  MemberHealth
		checked time.Time
		probe   ProbeState
		seen    time.Time
		want    etcdState
	}{
		"healthy": {node: NodeReady, health: MemberHealthy, checked: now, probe: ProbeHealthy, seen: now,
			want: etcdUp},
		"no network plugin": {node: NodeNotReady, health: MemberHealthy, checked: now, probe: ProbeHealthy, seen: now,
			want: etcdUp},
		"no probe of etcd": {node: NodeNotReady, health: MemberHealthy, checked: ago(5 * time.Minute), seen: now,
			want: etcdUp},
		"agent never seen": {node: NodeReady, health: MemberHealthy, checked: now, probe: ProbeHealthy, want: etcdUp},
		"Node lost": {node: NodeLost, health: MemberHealthy, checked: now, probe: ProbeHealthy, seen: now,
			want: etcdUnknown},
		"agent not seen for long": {node: NodeReady, health: MemberHealthy, checked: now, probe: ProbeHealthy,
			seen: ago(16 * time.Minute), want: etcdUnknown},
		"agent seen while the hub's clock was ahead": {node: NodeReady, health: MemberHealthy, checked: now, probe: ProbeHealthy,
			seen: ago(-14 * time.Hour), want: etcdUnknown},
		"agent seen by a hub whose clock is a little ahead": {node: NodeReady, health: MemberHealthy, checked: now, probe: ProbeHealthy,
			seen: ago(-time.Second), want: etcdUp},
		"not probed since the plan": {node: NodeReady, health: MemberHealthy, checked: now, probe: ProbeUnknown, seen: now,
			want: etcdUnknown},
		"old report of the leader": {node: NodeReady, health: MemberHealthy, checked: ago(13 * time.Minute),
			want: etcdUnknown},
		"no reports":                {node: NodeReady, want: etcdUnknown},
		"cluster not connected yet": {want: etcdUp},
		"cluster not connected, agent not seen for long": {seen: ago(time.Hour), want: etcdUnknown},
		"unhealthy by leader and probe": {node: NodeNotReady, health: MemberUnhealthy, checked: now, probe: ProbeUnhealthy, seen: now,
			want: etcdDown},
		"unhealthy by probe, no report of the leader": {probe: ProbeUnhealthy, seen: now, want: etcdDown},
		"unhealthy by probe, agent not seen for long": {probe: ProbeUnhealthy, seen: ago(time.Hour), want: etcdUnknown},
		"unhealthy by probe, healthy by leader": {node: NodeReady, health: MemberHealthy, checked: now, probe: ProbeUnhealthy, seen: now,
			want: etcdUnknown},
		"unhealthy by leader, healthy by probe": {node: NodeReady, health: MemberUnhealthy, checked: now, probe: ProbeHealthy, seen: now,
			want: etcdUnknown},
		"Node lost, unhealthy by leader": {node: NodeLost, health: MemberUnhealthy, checked: now, probe: ProbeHealthy, seen: now,
			want: etcdDown},
		"Node lost, unhealthy by leader, agent not seen for long": {node: NodeLost, health: MemberUnhealthy, checked: now, probe: ProbeHealthy,
			seen: ago(time.Hour), want: etcdDown},
		"Node lost, old report of the leader": {node: NodeLost, health: MemberUnhealthy, checked: ago(time.Hour), probe: ProbeHealthy,
			seen: ago(time.Hour), want: etcdUnknown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := Machine{Etcd: true, Progress: ProgressApplied, ProbesPassed: true, Node: tc.node, MemberHealth: tc.health,
				MemberCheckedAt: tc.checked, EtcdProbe: tc.probe, LastSeen: tc.seen}
			if got := m.etcdState(now); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestOneMemberAtATimeWithoutReadyNodes: without a network plugin, no Node is ready and etcd is healthy. A change is delivered to one
// member, and to the next once that is healthy again.
func TestOneMemberAtATimeWithoutReadyNodes(t *testing.T) {
	in := Inputs{Now: time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC), Bootstrapped: true}
	for _, name := range []string{"a", "b", "c"} {
		m := member(name, "ecw")
		m.Init, m.Change, m.Node = name == "a", ChangeDrain, NodeNotReady
		m.MemberHealth, m.MemberCheckedAt, m.LastSeen = MemberHealthy, in.Now, in.Now
		in.Machines = append(in.Machines, m)
	}
	for _, want := range []string{"a", "b", "c"} {
		delivered := ""
		for i, d := range Decide(in).Decisions {
			if d.Deliver {
				delivered += d.Machine
				in.Machines[i].Change, in.Machines[i].Progress, in.Machines[i].Underway = ChangeNone, ProgressPending, ChangeDrain
				in.Machines[i].ProbesPassed, in.Machines[i].EtcdProbe = false, ProbeUnknown
			}
		}
		if delivered != want {
			t.Fatalf("the change goes to %q, want %q", delivered, want)
		}
		for _, d := range Decide(in).Decisions {
			if d.Deliver {
				t.Errorf("%s is changed before %s is healthy again", d.Machine, want)
			}
		}
		for i := range in.Machines {
			if in.Machines[i].Name == want {
				in.Machines[i].Progress, in.Machines[i].Underway = ProgressApplied, ChangeNone
				if d := Decide(in).Decisions; d[(i+1)%3].Deliver {
					t.Errorf("%s is changed before etcd of %s is reported healthy", d[(i+1)%3].Machine, want)
				}
				in.Machines[i].EtcdProbe = ProbeHealthy
			}
		}
	}
}

// TestUnhealthyMember: k3s and RKE2 report an unreachable voter as EtcdIsVoter=False with the reason Unhealthy. It still counts as a voter.
func TestUnhealthyMember(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{EtcdRoleLabel: "true"}}}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown},
		{Type: EtcdIsVoter, Status: corev1.ConditionFalse, Reason: "Unhealthy", LastHeartbeatTime: metav1.Time{Time: now}},
	}
	in := Inputs{Now: now, Bootstrapped: true, Machines: []Machine{member("a", "ec"), member("b", "ec"), member("c", "ec")}}
	in.Machines[2].ReadNode(node)
	if m := in.Machines[2]; m.Membership != MemberUnknown || m.MemberHealth != MemberUnhealthy || !m.MemberCheckedAt.Equal(now) ||
		m.etcdState(now) != etcdDown {
		t.Errorf("got %+v", m)
	}
	in.Machines[0].Init = true
	for i := range in.Machines {
		in.Machines[i].Change = ChangeRestart
	}
	var delivered []string
	for _, d := range Decide(in).Decisions {
		if d.Deliver {
			delivered = append(delivered, d.Machine)
		}
	}
	if !slices.Equal(delivered, []string{"c"}) {
		t.Errorf("the change is delivered to %v, want the member that is down", delivered)
	}

	old, renewed, late := *node.DeepCopy(), *node.DeepCopy(), *node.DeepCopy()
	renewed.Status.Conditions[1].LastHeartbeatTime.Time = now.Add(5 * time.Minute)
	late.Status.Conditions[1].LastHeartbeatTime.Time = now.Add(time.Hour)
	read := func(node *corev1.Node) (m Machine) {
		m.ReadNode(node)
		return m
	}
	if read(&old).NodeDiffers(read(&renewed)) {
		t.Error("a report that was renewed in time counts as a change")
	}
	if !read(&old).NodeDiffers(read(&late)) {
		t.Error("a report that was too old is renewed, which does not count as a change")
	}
}

// TestExpires: a decision is made again when a report counts no more that it was made on.
func TestExpires(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		machines []Machine
		want     time.Duration
	}{
		"no machine":         {nil, 0},
		"nothing is known":   {[]Machine{{}}, 0},
		"nothing counts":     {[]Machine{{LastSeen: ago(time.Hour), MemberCheckedAt: ago(time.Hour)}}, 0},
		"the agent":          {[]Machine{{}, {LastSeen: ago(10 * time.Minute)}}, 5*time.Minute + time.Second},
		"the leader's":       {[]Machine{{LastSeen: ago(2 * time.Minute), MemberCheckedAt: ago(time.Minute)}}, 11*time.Minute + time.Second},
		"the Pods of RKE2":   {[]Machine{{ProbesPassedAt: ago(10 * time.Second)}}, 81 * time.Second},
		"at this moment":     {[]Machine{{LastSeen: ago(agentTimeout)}}, time.Second},
		"the first of three": {[]Machine{{LastSeen: now}, {LastSeen: ago(14 * time.Minute)}, {LastSeen: ago(time.Hour)}}, 61 * time.Second},
	} {
		got := Expires(tc.machines, now)
		if got != tc.want {
			t.Errorf("%s: after %s, want %s", name, got, tc.want)
		}
	}
}
