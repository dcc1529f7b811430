package plandelivery

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// TestSettledWithTheReport: what follows from a report is written with it, in one request.
func TestSettledWithTheReport(t *testing.T) {
	stored := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m1-machine-plan", UID: "s", ResourceVersion: "7",
			Annotations: map[string]string{"kept": "1", "ended": "1"}},
		Type: rkev1.MachinePlanSecretType,
		Data: map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyFailedOutput: []byte("x")},
	}
	api := fake.NewClientBuilder().WithObjects(stored).Build()
	h := &Handler{Options{Client: api, Settle: func(secret *corev1.Secret, _ time.Time) {
		if string(secret.Data[plans.KeyPlanState]) != "succeeded" || secret.Data[plans.KeyFailedOutput] != nil {
			t.Errorf("the report is not seen: %q", secret.Data)
		}
		secret.Data[plans.KeyAppliedPlan] = secret.Data[plans.KeyPlan]
		delete(secret.Annotations, "ended")
		secret.Annotations["passed"] = "1"
	}}}
	state := []byte("succeeded")
	changes := map[string]*[]byte{plans.KeyPlanState: &state, plans.KeyFailedOutput: nil}
	written, err := h.writeChanges(t.Context(), stored.DeepCopy(), changes)
	if err != nil {
		t.Fatal(err)
	}
	found := &corev1.Secret{}
	if err := api.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "m1-machine-plan"}, found); err != nil {
		t.Fatal(err)
	}
	if found.ResourceVersion != "8" || written.ResourceVersion != "8" {
		t.Errorf("the Secret was written to version %s; want one write", found.ResourceVersion)
	}
	want := map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyPlanState: state, plans.KeyAppliedPlan: []byte("{}")}
	if diff := cmp.Diff(want, found.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"kept": "1", "passed": "1"}, found.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// TestReportWithoutRoom: a report counts also where the Secret has no room for what follows from it.
func TestReportWithoutRoom(t *testing.T) {
	stored := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m1-machine-plan", UID: "s", ResourceVersion: "7"},
		Type:       rkev1.MachinePlanSecretType, Data: map[string][]byte{plans.KeyPlan: []byte("{}")},
	}
	api := fake.NewClientBuilder().WithObjects(stored).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if obj.(*corev1.Secret).Data[plans.KeyAppliedPlan] != nil {
				return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), obj.GetName(), nil)
			}
			return c.Update(ctx, obj, opts...)
		}}).Build()
	h := &Handler{Options{Client: api, Settle: func(secret *corev1.Secret, _ time.Time) {
		secret.Data[plans.KeyAppliedPlan] = secret.Data[plans.KeyPlan]
	}}}
	state := []byte("succeeded")
	written, err := h.writeChanges(t.Context(), stored.DeepCopy(), map[string]*[]byte{plans.KeyPlanState: &state})
	if err != nil || string(written.Data[plans.KeyPlanState]) != "succeeded" || written.Data[plans.KeyAppliedPlan] != nil {
		t.Errorf("got %v (%v)", written, err)
	}
}
