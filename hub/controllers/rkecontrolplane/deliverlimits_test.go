package rkecontrolplane

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// TestRestoreLimits: an agent that retries without an end has one for a plan that restores a snapshot, and the plan counts as failed no
// sooner. What is delivered afterwards has no limit again.
func TestRestoreLimits(t *testing.T) {
	found, err := release.Lookup("v1.36.3+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a-machine-plan"}}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(stored).Build(), Now: time.Now}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, inputs: render.Cluster{Release: found}}
	restore := plans.Plan{Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{
		Name: string(operation.TaskRestoreSnapshot), Env: []string{"DROVER_OPERATION=uid/Restore"}}}}}
	for _, step := range []struct {
		plan                   plans.Plan
		maxFailures, threshold int
	}{
		{plans.Plan{}, plans.Unlimited, 1}, {restore, 3, 3}, {plans.Plan{}, plans.Unlimited, 1},
	} {
		secret := &corev1.Secret{}
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(stored), secret); err != nil {
			t.Fatal(err)
		}
		m := &machine{machine: &clusterv1.Machine{}, secret: secret, plan: step.plan, decision: rollout.Decision{Deliver: true}}
		if m.encoded, err = step.plan.Encode(); err != nil {
			t.Fatal(err)
		}
		if err := r.updatePlanSecret(t.Context(), s, m); err != nil {
			t.Fatal(err)
		}
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(stored), secret); err != nil {
			t.Fatal(err)
		}
		got, threshold := plans.DecodeDelivery(secret.Data), plans.FailureThreshold(secret.Data)
		if got.MaxFailures != step.maxFailures || threshold != step.threshold {
			t.Errorf("%s: at most %d failures, failed after %d; want %d and %d", m.encoded, got.MaxFailures, threshold, step.maxFailures,
				step.threshold)
		}
	}
}
