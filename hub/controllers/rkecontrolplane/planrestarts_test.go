package rkecontrolplane

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestPlanRestarts: a plan that restarts nothing, such as one with a snapshot or with new tokens, keeps no other server of RKE2 waiting
// for static Pods that are not replaced. It does not end the wait for those of a restart before it either.
func TestPlanRestarts(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	passed := func(change rollout.Change, ago time.Duration) rollout.Machine {
		return rollout.Machine{Etcd: true, Change: change, Progress: rollout.ProgressApplied, ProbesPassed: true, ProbesPassedAt: now.Add(-ago)}
	}
	pending := func(underway rollout.Change) rollout.Machine {
		return rollout.Machine{Etcd: true, Change: rollout.ChangeMinor, Progress: rollout.ProgressPending, Underway: underway}
	}
	ofK3s := passed(rollout.ChangeMinor, 0)
	ofK3s.ProbesPassedAt = time.Time{}
	for name, tc := range map[string]struct {
		state        rollout.Machine
		before, want string
	}{
		"a restart":                        {passed(rollout.ChangeRestart, time.Hour), "", "true"},
		"another drain":                    {passed(rollout.ChangeDrain, time.Hour), "true", "true"},
		"the first plan":                   {rollout.Machine{ControlPlane: true, Change: rollout.ChangeFirst}, "", "true"},
		"no restart":                       {passed(rollout.ChangeMinor, time.Second), "", ""},
		"no restart, a moment after one":   {passed(rollout.ChangeMinor, time.Minute), "true", "true"},
		"no restart, long after one":       {passed(rollout.ChangeMinor, 2*time.Minute), "true", ""},
		"no restart, after one of k3s":     {ofK3s, "true", ""},
		"no restart, in place of one":      {pending(rollout.ChangeRestart), "", "true"},
		"no restart, in place of no other": {pending(rollout.ChangeMinor), "", ""},
		"no restart, before the probes passed": {rollout.Machine{Etcd: true, Change: rollout.ChangeMinor, Progress: rollout.ProgressApplied},
			"true", "true"},
		"a worker": {rollout.Machine{Worker: true, Change: rollout.ChangeRestart}, "", ""},
	} {
		m := &machine{secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}, state: tc.state}
		if tc.before != "" {
			m.secret.Annotations[rkev1.PlanRestartsAnnotation] = tc.before
		}
		if got := m.planRestarts(now); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
