package plansecret

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/plans"
)

// TestRetryOfPausedControlPlane: a retry of a failed plan that is due while the RKEControlPlane is paused by its annotation starts once
// that is removed.
func TestRetryOfPausedControlPlane(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	meta := func(name string, uid types.UID) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "fleet", Name: name, UID: uid}
	}
	ref := func(kind, name string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: kind, Name: name}
	}
	cluster := &clusterv1.Cluster{ObjectMeta: meta("c", "cluster")}
	cluster.Spec.ControlPlaneRef = ref("RKEControlPlane", "c")
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: meta("c", "control-plane")}
	controlPlane.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	controlPlane.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}
	machine := &clusterv1.Machine{ObjectMeta: meta("a", "machine")}
	machine.Spec.ClusterName, machine.Spec.Bootstrap.ConfigRef = "c", ref("RKEBootstrap", "a")
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: meta("a", "bootstrap")}
	bootstrap.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	plan := []byte("{}")
	secret := &corev1.Secret{ObjectMeta: meta(rkev1.PlanSecretName("a"), "secret"), Type: rkev1.MachinePlanSecretType,
		Data: map[string][]byte{plans.KeyPlan: plan, plans.KeyPlanState: []byte(plans.StateFailed)}}
	secret.Annotations = map[string]string{
		rkev1.PlanRetryAnnotation: retry{Checksum: plans.Checksum(plan), Attempts: 1, FailedAt: now.Add(-time.Hour)}.encode(),
	}
	secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)).
		WithStatusSubresource(machine).WithObjects(cluster, controlPlane, machine, bootstrap, secret).Build()
	r := &Reconciler{Client: c, Cache: c, Now: func() time.Time { return now }}

	reconcile := func(wantState plans.State, wantMessage string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			t.Fatal(err)
		}
		if got := plans.State(secret.Data[plans.KeyPlanState]); got != wantState {
			t.Errorf("the plan is %s, want %s", got, wantState)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
			t.Fatal(err)
		}
		if got := conditions.GetMessage(machine, rkev1.PlanAppliedCondition); !strings.Contains(got, wantMessage) {
			t.Errorf("the Machine says %q, want %q", got, wantMessage)
		}
	}
	reconcile(plans.StateFailed, "waiting for the RKEControlPlane to be unpaused to retry")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(controlPlane), controlPlane); err != nil {
		t.Fatal(err)
	}
	controlPlane.Annotations = nil
	if err := c.Update(t.Context(), controlPlane); err != nil {
		t.Fatal(err)
	}
	reconcile(plans.StatePending, "retrying now")
}
