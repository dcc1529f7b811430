package secretcache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/plans"
)

// TestPlanStoreDropsContent: of a Secret that was deleted, no content is kept for watches that continue from before, whether the deletion
// was seen or follows from a list. A watch that is open gets the last state, as from Kubernetes.
func TestPlanStoreDropsContent(t *testing.T) {
	withPlan := func(version string) *corev1.Secret {
		secret := planAt(version, "a")
		secret.Data = map[string][]byte{plans.KeyPlan: []byte("{}")}
		return secret
	}
	for name, remove := range map[string]func(p *PlanStore) error{
		"deleted":    func(p *PlanStore) error { return p.Delete(withPlan("12")) },
		"not listed": func(p *PlanStore) error { return p.Replace(nil, "12") },
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPlanStore()
			must(t, p.Replace([]any{withPlan("5")}, "10"))
			_, w, err := p.Watch(planKey, 10)
			must(t, err)
			must(t, remove(p))
			late, _, err := p.Watch(planKey, 10)
			must(t, err)
			want := planAt("12", "a")
			want.APIVersion, want.Kind, want.ManagedFields = "v1", "Secret", nil
			if diff := cmp.Diff([]PlanEvent{{Type: "DELETED", Secret: want, Version: 12}}, late); diff != "" {
				t.Errorf("events of a late watch (-want +got):\n%s", diff)
			}
			open := want.DeepCopy()
			open.Data = map[string][]byte{plans.KeyPlan: []byte("{}")}
			if diff := cmp.Diff(PlanEvent{Type: "DELETED", Secret: open, Version: 12}, <-w.events); diff != "" {
				t.Errorf("event of an open watch (-want +got):\n%s", diff)
			}
		})
	}
}
