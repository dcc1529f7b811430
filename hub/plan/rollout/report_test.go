package rollout

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

func TestReadReport(t *testing.T) {
	plan, err := plans.Plan{Probes: map[string]plans.Probe{"kubelet": {}, "etcd": {}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	sum := plans.Checksum(plan)
	tests := map[string]struct {
		status    plans.Status
		none      bool
		want      Progress
		checkedIn bool
		unhealthy []string
	}{
		"nothing delivered": {none: true},
		"just delivered": {status: plans.Status{State: plans.StatePending}, want: ProgressPending,
			unhealthy: []string{"etcd", "kubelet"}},
		"in progress": {status: plans.Status{State: plans.StateInProgress, Revision: 1}, want: ProgressApplying,
			checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
		"applied, not probed": {status: plans.Status{State: plans.StateSucceeded, AppliedChecksum: sum, Revision: 1},
			want: ProgressApplied, checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
		"applied, one probe healthy": {status: plans.Status{State: plans.StateSucceeded, Revision: 1,
			ProbeStatuses: map[string]plans.ProbeStatus{"etcd": {Healthy: true},
				"kubelet": {}}}, want: ProgressApplied, checkedIn: true, unhealthy: []string{"kubelet"}},
		"applied, all healthy": {status: plans.Status{State: plans.StateSucceeded, Revision: 1,
			ProbeStatuses: map[string]plans.ProbeStatus{"etcd": {Healthy: true},
				"kubelet": {Healthy: true}}}, want: ProgressApplied, checkedIn: true},
		"failed": {status: plans.Status{State: plans.StateFailed, FailedChecksum: sum, FailureCount: 1,
			Revision: 1}, want: ProgressFailed, checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
		"pending again after a success": {status: plans.Status{State: plans.StatePending, AppliedChecksum: sum, Revision: 1},
			want: ProgressPending, checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
		"an older agent has applied it": {status: plans.Status{State: plans.StatePending, AppliedChecksum: sum},
			want: ProgressApplied, checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
		"an older agent has failed": {status: plans.Status{State: plans.StatePending, FailedChecksum: sum, FailureCount: 1},
			want: ProgressFailed, checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
		"an older agent has applied the previous plan": {status: plans.Status{State: plans.StatePending, AppliedChecksum: "other"},
			want: ProgressPending, checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
		"no state at all, applied": {status: plans.Status{AppliedChecksum: sum}, want: ProgressApplied, checkedIn: true,
			unhealthy: []string{"etcd", "kubelet"}},
		"paused": {status: plans.Status{State: plans.StatePaused, Revision: 1}, want: ProgressPaused,
			checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
		"canceled in the older spelling": {status: plans.Status{State: plans.StateCancelled, Revision: 1}, want: ProgressCanceled,
			checkedIn: true, unhealthy: []string{"etcd", "kubelet"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			data := plans.SecretData{}
			if !tc.none {
				plans.Deliver(data, plan, plans.Unlimited, 1)
			}
			if err := tc.status.WriteTo(data); err != nil {
				t.Fatal(err)
			}
			r, err := ReadReport(data)
			if err != nil {
				t.Fatal(err)
			}
			if r.Progress != tc.want || r.CheckedIn() != tc.checkedIn {
				t.Errorf("got %q, checked in %v; want %q, %v", r.Progress, r.CheckedIn(), tc.want, tc.checkedIn)
			}
			if diff := cmp.Diff(tc.unhealthy, r.NotHealthy()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadReportErrors(t *testing.T) {
	for name, data := range map[string]plans.SecretData{
		"invalid report": {plans.KeyFailureCount: []byte("many")},
		"invalid plan":   {plans.KeyPlan: []byte("{")},
	} {
		if _, err := ReadReport(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEtcdProbe(t *testing.T) {
	probes := func(names ...string) plans.Plan {
		p := plans.Plan{Probes: map[string]plans.Probe{}}
		for _, name := range names {
			p.Probes[name] = plans.Probe{}
		}
		return p
	}
	all := []string{"etcd", "kubelet", "kube-apiserver"}
	tests := map[string]struct {
		plan               plans.Plan
		unhealthy, unknown []string
		want               ProbeState
	}{
		"healthy":                       {plan: probes(all...), unhealthy: all[1:], want: ProbeHealthy},
		"unhealthy":                     {plan: probes(all...), unhealthy: all[:1], want: ProbeUnhealthy},
		"not probed yet":                {plan: probes(all...), unhealthy: all[1:], unknown: all[:1], want: ProbeUnknown},
		"k3s, healthy":                  {plan: probes(all[1:]...), want: ProbeHealthy},
		"k3s, its API server unhealthy": {plan: probes(all[1:]...), unhealthy: all[2:], want: ProbeHealthy},
		"k3s, not probed yet":           {plan: probes(all[1:]...), unhealthy: all[2:], unknown: all[1:2], want: ProbeUnknown},
		"k3s, all unhealthy":            {plan: probes(all[1:]...), unhealthy: all[1:], want: ProbeUnhealthy},
		"k3s, etcd only":                {plan: probes(), want: ProbeNone},
	}
	for name, tc := range tests {
		if got := (Report{Delivered: tc.plan, Unhealthy: tc.unhealthy, HealthUnknown: tc.unknown}).EtcdProbe(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestTailOf(t *testing.T) {
	long := strings.Repeat("x", 1000) + "ü"
	if got := []rune(tailOf([]byte(long))); len(got) != 301 || got[0] != '…' || got[300] != 'ü' {
		t.Errorf("got %d runes: %q", len(got), string(got))
	}
}

func TestFailedOutput(t *testing.T) {
	r := Report{Status: plans.Status{FailedOutput: map[string][]byte{"b": []byte("no\n space\n"), "a": []byte("x"), "c": nil}}}
	if got := r.FailedOutput(); got != "output of instruction a: x; output of instruction b: no space" {
		t.Errorf("got %q", got)
	}
	if got := (Report{}).FailedOutput(); got != "" {
		t.Errorf("got %q", got)
	}
}
