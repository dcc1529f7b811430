package preview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/plan/rollout"
)

// machines makes machines of names like "e1" (etcd), "c1" (control plane), "a1" (all roles) and "w1" (worker). The first is the init node.
func machines(change rollout.Change, names ...string) []rollout.Machine {
	var out []rollout.Machine
	for i, name := range names {
		m := rollout.Machine{
			Name: name, ID: name, HasPlanSecret: true, Init: i == 0, Change: change, Version: "v1.35.1+k3s1", WantVersion: "v1.36.3+k3s1",
			Etcd: strings.Contains("ea", name[:1]), ControlPlane: strings.Contains("ca", name[:1]), Worker: strings.Contains("wa", name[:1]),
			Progress: rollout.ProgressApplied, CheckedIn: true,
		}
		if m.Server() {
			m.JoinURL = "https://" + name
		}
		out = append(out, m)
	}
	return out
}

func TestOrder(t *testing.T) {
	six := []string{"a1", "a2", "a3", "w1", "w2", "w3"}
	drain := rollout.DrainOptions{Enabled: true, Options: `{"enabled":true}`, HooksOnly: `{}`}
	tests := []struct {
		name string
		in   rollout.Inputs
		want string
	}{
		{name: "nothing", in: rollout.Inputs{Machines: machines(rollout.ChangeNone, six...)}, want: "[]"},
		{name: "servers first, one by one", in: rollout.Inputs{Machines: machines(rollout.ChangeRestart, six...), WorkerConcurrency: "2"},
			want: "[[a1] [a2] [a3] [w1 w2] [w3]]"},
		{name: "roles come one after another",
			in:   rollout.Inputs{Machines: machines(rollout.ChangeRestart, "e1", "c1", "w1", "w2"), WorkerConcurrency: "0"},
			want: "[[e1] [c1] [w1 w2]]"},
		{name: "drains are no change",
			in: rollout.Inputs{Machines: machines(rollout.ChangeDrain, six...), WorkerConcurrency: "50%", ControlPlaneDrain: drain,
				WorkerDrain: drain},
			want: "[[a1] [a2] [a3] [w1 w2] [w3]]"},
		{name: "what restarts nothing comes at once", in: rollout.Inputs{Machines: machines(rollout.ChangeMinor, "a1", "a2", "a3")},
			want: "[[a1 a2 a3]]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.in.Bootstrapped = true
			if diff := cmp.Diff(test.want, fmt.Sprint(Order(test.in))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestOrderOfUnhealthyCluster: what is wrong at the moment does not hide the order, and a machine that no plan can be made for is left out.
func TestOrderOfUnhealthyCluster(t *testing.T) {
	in := rollout.Inputs{Machines: machines(rollout.ChangeRestart, "a1", "a2", "a3", "w1"), Bootstrapped: true,
		Blocked: rollout.Wait{Reason: "EtcdLost"}, OrphanedMembers: []rollout.Member{{Node: "x", Membership: rollout.MemberVoter}}}
	in.Now = time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	in.Machines[0].ProbesPassedAt = in.Now
	in.Machines[1].Progress, in.Machines[1].Node = rollout.ProgressFailed, rollout.NodeNotReady
	in.Machines[2].HealthUnknown = []string{"etcd"}
	in.Machines[3].Problem = "no"
	if got := fmt.Sprint(Order(in)); got != "[[a1] [a2] [a3]]" {
		t.Errorf("got %s", got)
	}
	if in.Machines[1].Progress != rollout.ProgressFailed {
		t.Error("the machines that were asked about were changed")
	}
}
