package rkecontrolplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

func TestDrainOptions(t *testing.T) {
	got := drainOptions(rkev1.DrainOptions{Enabled: true, Timeout: 60,
		PostDrainHooks: []rkev1.DrainHook{{Annotation: "hooks.example.com/done"}}})
	want := rollout.DrainOptions{
		Enabled: true, Hooks: true,
		Options:   `{"enabled":true,"timeout":60,"postDrainHooks":[{"annotation":"hooks.example.com/done"}]}`,
		HooksOnly: `{"timeout":60,"postDrainHooks":[{"annotation":"hooks.example.com/done"}]}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := drainOptions(rkev1.DrainOptions{PreDrainHooks: []rkev1.DrainHook{{}}}); got.Enabled || got.Hooks {
		t.Errorf("an empty hook counts: %+v", got)
	}
}

// A new request takes back the end of the one before; an end is asked for with the options of the drain that it is of.
func TestRequestDrain(t *testing.T) {
	for _, tc := range []struct {
		name         string
		decision     rollout.Decision
		before, want map[string]string
	}{
		{name: "nothing is asked for"},
		{name: "a drain", decision: rollout.Decision{Drain: "{1}"}, want: map[string]string{rkev1.DrainOptionsAnnotation: "{1}"}},
		{
			name: "another one", decision: rollout.Decision{Drain: "{2}"},
			before: map[string]string{rkev1.DrainOptionsAnnotation: "{1}", rkev1.UncordonAnnotation: "{1}"},
			want:   map[string]string{rkev1.DrainOptionsAnnotation: "{2}"},
		},
		{
			name: "its end", decision: rollout.Decision{Uncordon: true},
			before: map[string]string{rkev1.DrainOptionsAnnotation: "{1}"},
			want:   map[string]string{rkev1.DrainOptionsAnnotation: "{1}", rkev1.UncordonAnnotation: "{1}"},
		},
		{name: "the end of none", decision: rollout.Decision{Uncordon: true}},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: tc.before}}
		requestDrain(tc.decision, secret)
		if diff := cmp.Diff(tc.want, secret.Annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
