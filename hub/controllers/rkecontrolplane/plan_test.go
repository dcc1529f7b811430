package rkecontrolplane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// TestOldView: a cache that has not seen what an earlier reconcile did to one etcd machine does not let the next one have its turn too.
func TestOldView(t *testing.T) {
	r, cached, next := bigCluster(t, 3)
	change := func(s *scope) { s.controlPlane.Spec.ProvisionGeneration = 7 }
	s := next()
	change(s)
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	var first *machine
	for _, m := range s.machines {
		if m.decision.Deliver {
			if first != nil {
				t.Fatalf("%s and %s change at the same time", first.machine.Name, m.machine.Name)
			}
			first = m
		}
	}
	if first == nil {
		t.Fatal("nothing changes")
	}

	// What the reconcile wrote is in the API, and not in the cache yet.
	live := &shelf{machines: cached.machines, bootstraps: cached.bootstraps}
	cached.secrets.DeepCopyInto(&live.secrets)
	for i := range live.secrets.Items {
		if secret := &live.secrets.Items[i]; secret.Name == first.secret.Name {
			plans.Deliver(secret.Data, first.encoded, plans.Unlimited, first.inputs.FailureThreshold())
			secret.ResourceVersion = "2"
		}
	}
	r.Live = live
	s = next()
	change(s)
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	if !s.live {
		t.Error("it was decided on the old view")
	}
	for _, m := range s.machines {
		if m.decision.Deliver {
			t.Errorf("%s changes while %s does: %+v", m.machine.Name, first.machine.Name, m.decision)
		}
	}
}

// TestConfigGeneration: what Rancher has counted is kept where the status is lost, as by a move: another number restarts all machines.
func TestConfigGeneration(t *testing.T) {
	for name, tc := range map[string]struct {
		status         int64
		annotation     string
		want           int64
		wantAnnotation string
	}{
		"of a cluster of the hub":     {},
		"of a cluster of Rancher":     {status: 2, want: 2, wantAnnotation: "2"},
		"Rancher has restored again":  {status: 3, annotation: "2", want: 3, wantAnnotation: "3"},
		"the status was lost":         {annotation: "2", want: 2, wantAnnotation: "2"},
		"an annotation of no meaning": {annotation: "two", wantAnnotation: "two"},
	} {
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}}
		s.controlPlane.Status.ConfigGeneration = tc.status
		if tc.annotation != "" {
			s.controlPlane.Annotations = map[string]string{rkev1.ConfigGenerationAnnotation: tc.annotation}
		}
		got := s.configGeneration()
		if got != tc.want || s.controlPlane.Status.ConfigGeneration != tc.want {
			t.Errorf("%s: %d, status %d, want %d", name, got, s.controlPlane.Status.ConfigGeneration, tc.want)
		}
		if annotation := s.controlPlane.Annotations[rkev1.ConfigGenerationAnnotation]; annotation != tc.wantAnnotation {
			t.Errorf("%s: the annotation is %q, want %q", name, annotation, tc.wantAnnotation)
		}
	}
}

// The mark of the init node goes with its plan Secret, so one that a reconcile would set is risky too.
func TestRisky(t *testing.T) {
	marked := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
	marked.state.Init = true
	s := &scope{machines: []*machine{marked}}
	if !s.needsLive() {
		t.Error("a new mark is no risk")
	}
	marked.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{rkev1.InitNodeLabel: "true"}}}
	if s.needsLive() {
		t.Error("a mark that is there is a risk")
	}
	marked.state.Change, marked.decision.Deliver = rollout.ChangeMinor, true
	if s.needsLive() {
		t.Error("a change that restarts nothing is a risk")
	}
	marked.state.Change = rollout.ChangeRestart
	if !s.needsLive() {
		t.Error("a restart of etcd is no risk")
	}
}
