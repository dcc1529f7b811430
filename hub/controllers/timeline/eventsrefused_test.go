package timeline

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// TestEventsRefused: in a namespace that takes no Events, as with a quota, the timeline follows the cluster, and has no time until which
// there were Events.
func TestEventsRefused(t *testing.T) {
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: clusterKey.Name, UID: "uid-c",
		CreationTimestamp: metav1.NewTime(noon)}, Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	cluster.Status.Conditions = []metav1.Condition{condition(provisioningv1.ReadyCondition, metav1.ConditionUnknown, "WaitingForAgent", noon)}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "c", errors.New("exceeded quota: no-events"))
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, provisioningv1.AddToScheme, rkev1.AddToScheme,
		operationv1.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, is := o.(*corev1.Event); is {
				return refused
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	now := noon
	r := &Reconciler{Client: c, Live: c, Now: func() time.Time { return now }}
	check := func(want string) {
		t.Helper()
		now = now.Add(time.Minute)
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: clusterKey}); !errors.Is(err, refused) {
			t.Errorf("got %v", err)
		}
		record, _, err := timelines.Read(t.Context(), c, clusterKey)
		if err != nil {
			t.Fatal(err)
		}
		if phase, _ := record.Subjects[0].Present(); phase.Name != want {
			t.Errorf("the present phase is %s, want %s", phase.Name, want)
		}
		if record.Observed.After(noon) {
			t.Errorf("transitions have Events until %s", record.Observed)
		}
	}
	check("WaitingForAgent")
	if err := c.Get(t.Context(), clusterKey, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status.Conditions[0] = condition(provisioningv1.ReadyCondition, metav1.ConditionTrue, "Ready", noon.Add(time.Minute))
	if err := c.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	check(phaseReady)

	// What changes soon after a write is saved when that is due, and not when the back-off after a failure ends.
	now = now.Add(time.Second)
	cluster.Status.Conditions[0] = condition(provisioningv1.ReadyCondition, metav1.ConditionUnknown, "WaitingForProbes", now)
	if err := c.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: clusterKey})
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 5*time.Second {
		t.Errorf("got %+v, %v", result, err)
	}
	check("WaitingForProbes")
}
