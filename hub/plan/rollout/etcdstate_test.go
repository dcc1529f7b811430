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
		node   NodeState
		health MemberHealth
		asked  time.Time
		probe  ProbeState
		seen   time.Time
		want   etcdState
	}{
		"all is well": {node: NodeReady, health: MemberHealthy, asked: now, probe: ProbeHealthy, seen: now,
			want: etcdUp},
		"no network plugin": {node: NodeNotReady, health: MemberHealthy, asked: now, probe: ProbeHealthy, seen: now,
			want: etcdUp},
		"a distribution without a probe": {node: NodeNotReady, health: MemberHealthy, asked: ago(5 * time.Minute), seen: now,
			want: etcdUp},
		"an agent that was never recorded": {node: NodeReady, health: MemberHealthy, asked: now, probe: ProbeHealthy, want: etcdUp},
		"the kubelet is silent": {node: NodeLost, health: MemberHealthy, asked: now, probe: ProbeHealthy, seen: now,
			want: etcdUnknown},
		"the agent is silent": {node: NodeReady, health: MemberHealthy, asked: now, probe: ProbeHealthy,
			seen: ago(16 * time.Minute), want: etcdUnknown},
		"the probe was not asked since the plan": {node: NodeReady, health: MemberHealthy, asked: now, probe: ProbeUnknown, seen: now,
			want: etcdUnknown},
		"the leader has said nothing for long":   {node: NodeReady, health: MemberHealthy, asked: ago(13 * time.Minute), want: etcdUnknown},
		"nobody has ever said anything":          {node: NodeReady, want: etcdUnknown},
		"before there is an API to ask":          {want: etcdUp},
		"no API to ask, and the agent is silent": {seen: ago(time.Hour), want: etcdUnknown},
		"both say that it is down": {node: NodeNotReady, health: MemberUnhealthy, asked: now, probe: ProbeUnhealthy, seen: now,
			want: etcdDown},
		"the agent says so, and nobody can be asked": {probe: ProbeUnhealthy, seen: now, want: etcdDown},
		"a silent agent has said so":                 {probe: ProbeUnhealthy, seen: ago(time.Hour), want: etcdUnknown},
		"the agent says so, and the leader does not": {node: NodeReady, health: MemberHealthy, asked: now, probe: ProbeUnhealthy, seen: now,
			want: etcdUnknown},
		"the leader says so, and the agent does not": {node: NodeReady, health: MemberUnhealthy, asked: now, probe: ProbeHealthy, seen: now,
			want: etcdUnknown},
		"a dead machine, a moment after its death": {node: NodeLost, health: MemberUnhealthy, asked: now, probe: ProbeHealthy, seen: now,
			want: etcdDown},
		"a dead machine, long after": {node: NodeLost, health: MemberUnhealthy, asked: now, probe: ProbeHealthy,
			seen: ago(time.Hour), want: etcdDown},
		"the leader has said so long ago": {node: NodeLost, health: MemberUnhealthy, asked: ago(time.Hour), probe: ProbeHealthy,
			seen: ago(time.Hour), want: etcdUnknown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := Machine{Etcd: true, Progress: ProgressApplied, ProbesPassed: true, Node: tc.node, MemberHealth: tc.health,
				MemberCheckedAt: tc.asked, EtcdProbe: tc.probe, LastSeen: tc.seen}
			if got := m.etcdState(now); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// With a broken network plugin no Node is ready and etcd is well: a change goes to one member, and to the next when that is back.
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
				t.Errorf("%s is changed before %s is back", d.Machine, want)
			}
		}
		for i := range in.Machines {
			if in.Machines[i].Name == want {
				in.Machines[i].Progress, in.Machines[i].Underway = ProgressApplied, ChangeNone
				if d := Decide(in).Decisions; d[(i+1)%3].Deliver {
					t.Errorf("%s is changed before etcd of %s was seen to be back", d[(i+1)%3].Machine, want)
				}
				in.Machines[i].EtcdProbe = ProbeHealthy
			}
		}
	}
}

// What k3s and RKE2 write of a voter that does not answer, EtcdIsVoter=False with the reason Unhealthy, does not make it a learner: it
// counts for the quorum.
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
		t.Errorf("the change goes to %v, and not to the member that is down", delivered)
	}

	old, renewed, late := *node.DeepCopy(), *node.DeepCopy(), *node.DeepCopy()
	renewed.Status.Conditions[1].LastHeartbeatTime.Time = now.Add(5 * time.Minute)
	late.Status.Conditions[1].LastHeartbeatTime.Time = now.Add(time.Hour)
	read := func(node *corev1.Node) (m Machine) {
		m.ReadNode(node)
		return m
	}
	if read(&old).NodeDiffers(read(&renewed)) {
		t.Error("a word that is renewed in time is taken for a change")
	}
	if !read(&old).NodeDiffers(read(&late)) {
		t.Error("a word that was too old is renewed, and nobody hears of it")
	}
}
