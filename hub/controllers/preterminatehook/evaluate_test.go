package preterminatehook

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/cause"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// etcd is a voter that works; change says in what it differs.
func etcd(name string, change ...func(*rollout.Machine)) rollout.Machine {
	m := rollout.Machine{Name: name, Etcd: true, ControlPlane: true, HasPlanSecret: true, JoinURL: "https://" + name + ":9345",
		Node: rollout.NodeReady, EtcdProbe: rollout.ProbeHealthy,
		Membership: rollout.MemberVoter, Progress: rollout.ProgressApplied, ProbesPassed: true, CheckedIn: true}
	for _, c := range change {
		c(&m)
	}
	return m
}

func going(m *rollout.Machine)  { m.Deleting, m.Removal = true, rollout.RemovalDue }
func asked(m *rollout.Machine)  { m.Deleting, m.Removal = true, rollout.RemovalRequested }
func joined(m *rollout.Machine) { m.JoinedTo = "https://a:9345" }

// worker is one that has joined "a".
func worker(name string) rollout.Machine {
	return rollout.Machine{Name: name, Worker: true, HasPlanSecret: true, Progress: rollout.ProgressApplied, JoinedTo: "https://a:9345"}
}

// The time at which the whole control plane was deleted is that of the last deletion, and there is none while a server stays.
func TestAbandonedAt(t *testing.T) {
	server := func(deleted time.Duration, roles ...string) *member {
		m := &member{machine: &clusterv1.Machine{}, state: rollout.Machine{Etcd: slices.Contains(roles, "etcd"),
			ControlPlane: slices.Contains(roles, "control-plane")}}
		if deleted != 0 {
			m.machine.DeletionTimestamp = &metav1.Time{Time: now.Add(-deleted)}
		}
		return m
	}
	going := []*member{server(time.Hour, "etcd"), server(time.Minute, "control-plane"), server(2*time.Minute, "etcd"), server(0)}
	if got := abandonedAt(going); !got.Equal(now.Add(-time.Minute)) {
		t.Errorf("got %v", got)
	}
	if got := abandonedAt(append(going, server(0, "control-plane"))); !got.IsZero() {
		t.Errorf("with a control plane machine that stays: %v", got)
	}
}

// backedUp gives a Machine that Cluster API has drained another hook.
func backedUp(machine *clusterv1.Machine) {
	machine.Annotations = map[string]string{clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/backup": ""}
	machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason}}
}

// TestEvaluate has Machine "a" that is being deleted, in situations that differ from one in which nothing is in its way.
func TestEvaluate(t *testing.T) {
	type change struct {
		s *clusterState
		c *candidate
	}
	recently := func(x change) { x.s.inputs.Now = now.Add(-9 * time.Minute) }
	starting := func(progress rollout.Progress) func(change) {
		return func(x change) {
			x.s.inputs.Now, x.c.state.Progress = now.Add(-8*time.Minute), progress
			x.c.state.ReadNode(nil)
		}
	}
	tests := []struct {
		name         string
		change       func(change)
		others       []rollout.Machine
		action       action
		reason       string
		message      string
		requeueAfter time.Duration
	}{
		{name: "nothing in the way", action: requestRemoval, reason: "Removing"},
		{name: "forced", change: func(x change) { x.c.forced = true; x.s.connected = false }, action: removeHook, reason: "Forced"},
		{name: "no etcd", change: func(x change) { x.c.state.Etcd, x.c.state.Membership = false, rollout.MemberNone }, action: removeHook,
			reason: "NoMember"},
		{name: "without the label, and nobody can be asked", change: func(x change) { x.c.state.Etcd, x.s.connected = false, false },
			action: keepHook, reason: "ClusterUnreachable"},
		{name: "without the label, in a cluster that never started", change: func(x change) {
			x.c.state.Etcd, x.s.connected, x.s.started = false, false, false
		}, action: removeHook, reason: "ClusterNeverStarted"},
		{name: "a member without the label", change: func(x change) { x.c.state.Etcd = false }, action: requestRemoval, reason: "Removing"},
		{name: "the Cluster goes too", change: func(x change) { x.s.deletion = "Cluster is being deleted" }, action: removeHook,
			reason: "ClusterDeleted", message: "Cluster is being deleted"},
		{name: "the RKEControlPlane has the UID of another Cluster", change: func(x change) {
			x.s.refused, x.s.started, x.c.state.Membership = cause.New("OwnerMismatch", "waiting"), false, rollout.MemberNone
		}, action: keepHook, reason: "OwnerMismatch", message: "waiting. To skip", requeueAfter: refreshInterval},
		{name: "a cluster that never came up", change: func(x change) { x.s.started, x.s.connected = false, false }, action: removeHook,
			reason: "ClusterNeverStarted"},
		{name: "a snapshot is being restored", change: func(x change) { x.s.restoring, x.c.state.Membership = "r", rollout.MemberNone },
			action: keepHook, reason: "WaitingForOperation", message: "(r)", requeueAfter: refreshInterval},
		{name: "a restore has left machines stopped", change: func(x change) { x.s.restoring = rollout.ReasonRestoreFailed },
			action: keepHook, reason: "WaitingForOperation", message: "delete all of them", requeueAfter: refreshInterval},
		{name: "forced while a snapshot is restored", change: func(x change) { x.s.restoring, x.c.forced = "r", true }, action: removeHook,
			reason: "Forced"},
		{name: "another machine has its Node", change: func(x change) { x.c.taken = "n"; x.c.state.ReadNode(nil) }, action: keepHook,
			reason: "NodeTaken", message: "remove its finalizers, and uncordon the Node"},
		{name: "forced although another machine has its Node", change: func(x change) { x.c.taken, x.c.forced = "n", true },
			action: removeHook, reason: "Forced"},
		{name: "drain first", change: func(x change) { x.c.state.Removal = rollout.RemovalNone }, action: keepHook, reason: "WaitingForDrain"},
		{name: "another hook", change: func(x change) { backedUp(x.c.machine); x.c.state.Removal = rollout.RemovalNone }, action: keepHook,
			reason: "WaitingForHooks", message: "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup. To skip"},
		{name: "another hook, later", change: func(x change) {
			backedUp(x.c.machine)
			x.c.machine.Status.Conditions, x.c.state.Removal = nil, rollout.RemovalNone
		}, action: keepHook, reason: "WaitingForDrain"},
		{name: "forced past another hook", change: func(x change) { backedUp(x.c.machine); x.c.forced = true }, action: removeHook,
			reason: "Forced"},
		{name: "nobody can be asked", change: func(x change) { x.s.connected = false }, action: keepHook, reason: "ClusterUnreachable",
			message: "To skip the removal, set the annotation rke.cattle.io/etcd-force-remove=true on the Machine"},
		{name: "removed", change: func(x change) { x.c.state.Membership = rollout.MemberNone }, action: removeHook, reason: "Removed"},
		{name: "no Node", change: func(x change) { x.c.state.ReadNode(nil) }, action: removeHook, reason: "Removed"},
		{name: "no Node yet", change: starting(rollout.ProgressApplied), action: keepHook, reason: "WaitingForNode",
			message: "Waiting up to 3m0s", requeueAfter: time.Minute},
		{name: "it is being installed", change: starting(rollout.ProgressApplying), action: keepHook, reason: "WaitingForNode",
			requeueAfter: time.Minute},
		{name: "not begun to start", change: starting(rollout.ProgressPending), action: removeHook, reason: "Removed"},
		{name: "its Node was deleted", change: func(x change) { starting(rollout.ProgressApplied)(x); x.c.machine.Status.NodeRef.Name = "a" },
			action: removeHook, reason: "Removed"},
		{name: "asked already", change: func(x change) { x.c.state.Removal = rollout.RemovalRequested }, action: keepHook, reason: "Removing",
			message: "rke.cattle.io/etcd-force-remove", requeueAfter: refreshInterval},
		{name: "the last one", others: []rollout.Machine{etcd("b", going)}, action: keepHook, reason: "LastMember",
			message: "add one, in a machine pool by a higher quantity"},
		{name: "the last one, but no member", others: []rollout.Machine{}, change: func(x change) { x.c.state.ReadNode(nil) },
			action: removeHook, reason: "Removed"},
		{name: "the whole control plane was deleted a moment ago", others: []rollout.Machine{etcd("b", going)},
			change: func(x change) { x.s.abandonedAt = now.Add(-time.Minute) }, action: keepHook, reason: "LastMember",
			message: "data with them at 12:04:00 UTC. To keep the data, add one", requeueAfter: 4 * time.Minute},
		{name: "the whole control plane was deleted", others: []rollout.Machine{etcd("b", going)},
			change: func(x change) { x.s.abandonedAt = now.Add(-5 * time.Minute); x.s.connected = false },
			action: removeHook, reason: "ControlPlaneDeleted"},
		{name: "it was deleted a moment ago, and nobody can be asked", others: []rollout.Machine{etcd("b", going)},
			change: func(x change) {
				x.s.abandonedAt, x.s.connected = now,
					false
			}, action: keepHook, reason: "ClusterUnreachable", requeueAfter: 5 * time.Minute},
		{name: "servers join by it", others: []rollout.Machine{etcd("b", joined), etcd("c"), worker("w")}, change: recently,
			action: keepHook, reason: "WaitingForServers", message: "another join address: b", requeueAfter: 4 * time.Minute},
		{name: "servers that go join by it", others: []rollout.Machine{etcd("b", joined, going), etcd("c"), etcd("d")}, change: recently,
			action: requestRemoval, reason: "Removing"},
		{name: "workers join by it", others: []rollout.Machine{etcd("b"), etcd("c"), worker("w")}, change: recently, action: requestRemoval,
			reason: "Removing"},
		{name: "nobody has joined anything", others: []rollout.Machine{etcd("b"), etcd("c")},
			change: func(x change) { x.c.state.JoinURL = ""; recently(x) }, action: requestRemoval, reason: "Removing"},
		{name: "servers joined by one that is down", others: []rollout.Machine{etcd("b", joined), etcd("c")},
			change: func(x change) { x.c.state.Node = rollout.NodeLost; recently(x) }, action: requestRemoval, reason: "Removing"},
		{name: "servers joined by it for too long", others: []rollout.Machine{etcd("b", joined), etcd("c")}, action: requestRemoval,
			reason: "Removing"},
		{name: "one of two", others: []rollout.Machine{etcd("b")}, change: func(x change) {
			x.s.inputs.Now = now.Add(-10*time.Minute +
				5*time.Second)
		},
			action: keepHook, reason: "Settling", requeueAfter: 15 * time.Second},
		{name: "one of two, after a while", others: []rollout.Machine{etcd("b")}, action: requestRemoval, reason: "Removing"},
		{name: "one of two, and another one may join", others: []rollout.Machine{etcd("b"), {Name: "x", Etcd: true, Created: now,
			Unusable: "has no infrastructure yet"}}, action: keepHook, reason: rollout.ReasonWaitingForQuorum, message: "Waiting for x to join",
			requeueAfter: time.Minute},
		{name: "another is on its way out", others: []rollout.Machine{etcd("b"), etcd("c"), etcd("d", asked)}, action: keepHook,
			reason: rollout.ReasonWaitingForOthers, message: "d"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := clusterState{started: true, connected: true, inputs: rollout.Inputs{Now: now}}
			c := candidate{machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a",
				DeletionTimestamp: &metav1.Time{Time: now.Add(-10 * time.Minute)}}}, state: etcd("a", going)}
			if tt.others == nil {
				tt.others = []rollout.Machine{etcd("b"), etcd("c")}
			}
			if tt.change != nil {
				tt.change(change{&s, &c})
			}
			s.inputs.Machines = append([]rollout.Machine{c.state}, tt.others...)
			got := evaluate(s, c)
			if got.action != tt.action || got.reason != tt.reason || !strings.Contains(got.message, tt.message) ||
				got.requeueAfter != tt.requeueAfter {
				t.Errorf("got %+v", got)
			}
			if got.message == "" {
				t.Error("there is no message")
			}
		})
	}
}
