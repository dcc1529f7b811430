package plandelivery

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/plans"
)

// What the hub notes in the Secret while a machine makes its report is no reason to refuse the report, and what it delivers is.
func TestReportOfAnOlderVersion(t *testing.T) {
	note := func(s *corev1.Secret) { s.Data[plans.KeyAppliedPlan] = s.Data[plans.KeyPlan] }
	upgrade := func(s *corev1.Secret) { s.Data[plans.KeyAgentUpgrade] = []byte("{}") }
	annotate := func(s *corev1.Secret) { s.Annotations = map[string]string{rkev1.PlanProbesPassedAnnotation: "now"} }
	for name, tc := range map[string]struct {
		// hub is what the hub writes, before the report arrives, or while it is written.
		hub   func(*corev1.Secret)
		while bool
		// forge is what the machine changes beside its report.
		forge func(*corev1.Secret)
		err   func(error) bool
	}{
		"an annotation":                 {hub: annotate},
		"an annotation, while it is":    {hub: annotate, while: true},
		"a label that is gone":          {hub: func(s *corev1.Secret) { s.Labels = nil }},
		"the applied plan":              {hub: note},
		"the applied plan, while it is": {hub: note, while: true},
		"an upgrade of the agent":       {hub: upgrade},
		"an upgrade, while it is":       {hub: upgrade, while: true},
		"another plan":                  {hub: func(s *corev1.Secret) { s.Data[plans.KeyPlan] = []byte(`{"files":[]}`) }, err: apierrors.IsConflict},
		"another plan, while it is": {hub: func(s *corev1.Secret) { s.Data[plans.KeyPlan] = []byte(`{"files":[]}`) }, while: true,
			err: apierrors.IsConflict},
		"the same plan again": {hub: func(s *corev1.Secret) { s.Data[plans.KeyPlanState] = []byte(plans.StatePending) },
			err: apierrors.IsConflict},
		"an annotation, and the plan forged": {hub: annotate,
			forge: func(s *corev1.Secret) { s.Data[plans.KeyPlan] = []byte("mine") }, err: apierrors.IsForbidden},
		"an annotation, and nothing kept": {hub: annotate,
			forge: func(s *corev1.Secret) { s.Data = nil }, err: apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			key := types.NamespacedName{Namespace: "ns", Name: "m1-machine-plan"}
			owner := fixtureBootstrap("m1")
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "s", ResourceVersion: "7",
					Labels: map[string]string{"kept": "yes"},
					OwnerReferences: []metav1.OwnerReference{
						*metav1.NewControllerRef(owner, rkev1.GroupVersion.WithKind("RKEBootstrap"))}},
				Type: rkev1.MachinePlanSecretType,
				Data: map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyPlanState: []byte(plans.StateFailed)},
			}
			var meanwhile func()
			api := fake.NewClientBuilder().WithObjects(secret).WithInterceptorFuncs(interceptor.Funcs{
				Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
					if change := meanwhile; change != nil {
						meanwhile = nil // the change is an update, too
						change()
					}
					return c.Update(ctx, obj, opts...)
				}}).Build()
			h := &Handler{Options{Client: api, Live: api, Secrets: &secretcache.Cache{Plans: secretcache.NewPlanStore()}, Logger: logr.Discard()}}
			sent := &corev1.Secret{}
			if err := api.Get(t.Context(), key, sent); err != nil {
				t.Fatal(err)
			}
			if err := h.Secrets.Plans.Replace([]any{sent.DeepCopy()}, sent.ResourceVersion); err != nil {
				t.Fatal(err)
			}
			write := func() {
				changed := &corev1.Secret{}
				if err := api.Get(t.Context(), key, changed); err != nil {
					t.Error(err)
				}
				tc.hub(changed)
				if err := api.Update(t.Context(), changed); err != nil {
					t.Error(err)
				}
			}
			if tc.while {
				meanwhile = write
			} else {
				write()
			}
			sent.Data[plans.KeyProbeStatuses] = []byte("{}")
			if tc.forge != nil {
				tc.forge(sent)
			}
			_, err := h.writeReport(t.Context(), &Machine{Account: key, Bootstrap: owner}, sent)
			if tc.err == nil && err != nil || tc.err != nil && !tc.err(err) {
				t.Fatalf("error %v", err)
			}
			want, got := &corev1.Secret{}, &corev1.Secret{}
			secret.DeepCopyInto(want)
			tc.hub(want)
			if tc.err == nil {
				want.Data[plans.KeyProbeStatuses] = []byte("{}")
			}
			if err := api.Get(t.Context(), key, got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Data, got.Data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			delete(got.Annotations, rkev1.AgentLastSeenAnnotation)
			if diff := cmp.Diff(want.Annotations, got.Annotations, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}
