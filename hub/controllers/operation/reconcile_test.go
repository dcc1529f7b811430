package operation

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	operationplan "github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

var key = client.ObjectKey{Namespace: "ns", Name: "op"}

// save is an operation for Cluster "prod" that is kept for a minute.
func save(change func(*operationv1.ETCDSnapshotSave)) *operationv1.ETCDSnapshotSave {
	op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: "uid", Generation: 1, CreationTimestamp: metav1.NewTime(noon),
	}}
	op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "prod"}
	op.Spec.TTL = 60
	if change != nil {
		change(op)
	}
	return op
}

func provisioning(config *provisioningv1.RKEConfig) *provisioningv1.Cluster {
	return &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod"},
		Spec: provisioningv1.ClusterSpec{RKEConfig: config}}
}

func capi(group, kind string) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod"}}
	if kind != "" {
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: "plane"}
	}
	return cluster
}

// controlPlane is the one that capi names.
func controlPlane() *rkev1.RKEControlPlane {
	return &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "plane"}}
}

func newReconciler(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Reconciler {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, provisioningv1.AddToScheme, rkev1.AddToScheme, operationv1.AddToScheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&operationv1.ETCDSnapshotSave{}).WithObjects(objects...).
		WithInterceptorFuncs(funcs).Build()
	return &Reconciler{Client: c, Now: func() time.Time { return noon }}
}

func (r *Reconciler) run(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := r.of(&operationv1.ETCDSnapshotSave{}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestReconcile(t *testing.T) {
	for name, c := range map[string]struct {
		op      *operationv1.ETCDSnapshotSave
		cluster client.Object
		plane   bool
		phase   operationv1.Phase
		reason  string
		after   time.Duration
	}{
		"no Cluster": {phase: operationv1.PhasePending, reason: operationplan.ReasonWaitingForCluster, after: time.Hour},
		"a Cluster that is new": {cluster: provisioning(&provisioningv1.RKEConfig{}), phase: operationv1.PhasePending,
			reason: operationplan.ReasonWaitingForCluster, after: time.Hour},
		"without control plane": {cluster: capi("", ""), phase: operationv1.PhasePending, reason: operationplan.ReasonWaitingForCluster,
			after: time.Hour},
		"imported": {cluster: provisioning(nil), phase: operationv1.PhaseFailed, reason: operationplan.ReasonClusterImported,
			after: afterEnd},
		"another provider": {cluster: capi("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"), phase: operationv1.PhaseFailed,
			reason: operationplan.ReasonControlPlaneNotSupported, after: afterEnd},
		"carried out by another": {cluster: capi("rke.cattle.io", "RKEControlPlane"), plane: true},
		"its RKEControlPlane does not exist": {cluster: capi("rke.cattle.io", "RKEControlPlane"), phase: operationv1.PhasePending,
			reason: operationplan.ReasonWaitingForCluster, after: time.Hour},
		"its RKEControlPlane was deleted": {
			op: save(func(op *operationv1.ETCDSnapshotSave) {
				op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, "Save"
			}),
			cluster: capi("rke.cattle.io", "RKEControlPlane"), phase: operationv1.PhaseFailed, reason: operationplan.ReasonClusterDeleted,
			after: afterEnd,
		},
		"a Cluster elsewhere": {
			op:    save(func(op *operationv1.ETCDSnapshotSave) { op.Spec.ClusterRef.Namespace = "other" }),
			phase: operationv1.PhaseFailed, reason: operationplan.ReasonClusterRefInvalid, after: afterEnd,
		},
		"canceled": {
			op:    save(func(op *operationv1.ETCDSnapshotSave) { op.Spec.Cancel = true }),
			phase: operationv1.PhaseCanceled, reason: "Canceled", after: afterEnd,
		},
		"its Cluster was deleted": {
			op: save(func(op *operationv1.ETCDSnapshotSave) {
				op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, "Save"
			}),
			phase: operationv1.PhaseFailed, reason: operationplan.ReasonClusterDeleted, after: afterEnd,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.op == nil {
				c.op = save(nil)
			}
			objects := []client.Object{c.op}
			if c.cluster != nil {
				objects = append(objects, c.cluster)
			}
			if c.plane {
				objects = append(objects, controlPlane())
			}
			r := newReconciler(t, interceptor.Funcs{}, objects...)
			result := r.run(t)
			got := &operationv1.ETCDSnapshotSave{}
			if err := r.Client.Get(t.Context(), key, got); err != nil {
				t.Fatal(err)
			}
			reason := ""
			if c := meta.FindStatusCondition(got.Status.Conditions, operationv1.SucceededCondition); c != nil {
				reason = c.Reason
			}
			if got.Status.Phase != c.phase || reason != c.reason || result.RequeueAfter != c.after || got.Status.Step != "" {
				t.Errorf("phase %q, reason %q, again after %s; want %q, %q, %s", got.Status.Phase, reason, result.RequeueAfter, c.phase, c.reason,
					c.after)
			}
			if want := c.phase.Ended(); want != (got.Annotations[operationv1.EndedAnnotation] != "") {
				t.Errorf("annotations %v", got.Annotations)
			}
			if len(got.OwnerReferences) > 0 {
				t.Errorf("owners %v", got.OwnerReferences)
			}
			// What has been decided is not written again.
			version := got.ResourceVersion
			if !c.phase.Ended() {
				if r.run(t); r.Client.Get(t.Context(), key, got) != nil || got.ResourceVersion != version {
					t.Error("it was written again")
				}
			}
		})
	}
}

// TestTTL: what has ended is deleted in time, also where the status was lost.
func TestTTL(t *testing.T) {
	at := metav1.NewTime(noon.Add(-59 * time.Second))
	ended := func(ttl int64, others ...client.Object) *Reconciler {
		objects := []client.Object{save(func(op *operationv1.ETCDSnapshotSave) {
			op.Spec.TTL = ttl
			op.Status = operationv1.Status{Phase: operationv1.PhaseFailed, TerminatedAt: &at}
		})}
		return newReconciler(t, interceptor.Funcs{}, append(objects, others...)...)
	}
	exists := func(r *Reconciler) bool {
		err := r.Client.Get(t.Context(), key, &operationv1.ETCDSnapshotSave{})
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil
	}
	if r := ended(60); r.run(t).RequeueAfter != time.Second || !exists(r) {
		t.Error("not looked at again after a second, or deleted before")
	}
	if r := ended(59); r.run(t).RequeueAfter != 0 || exists(r) {
		t.Error("not deleted")
	}
	for _, kept := range []int64{-1, 1 << 62} {
		if r := ended(kept); r.run(t).RequeueAfter != 0 || !exists(r) {
			t.Errorf("not kept with a TTL of %d", kept)
		}
	}
	if r := ended(0, capi("rke.cattle.io", "RKEControlPlane"), controlPlane()); r.run(t).RequeueAfter != 0 || !exists(r) {
		t.Error("the operation of an RKEControlPlane was deleted")
	}
	lost := newReconciler(t, interceptor.Funcs{}, save(func(op *operationv1.ETCDSnapshotSave) {
		op.Annotations = map[string]string{operationv1.EndedAnnotation: string(operationv1.PhaseSucceeded)}
	}))
	if lost.run(t).RequeueAfter != time.Minute {
		t.Error("not looked at again after its TTL")
	}
	got := &operationv1.ETCDSnapshotSave{}
	if err := lost.Client.Get(t.Context(), key, got); err != nil || got.Status.Phase != operationv1.PhaseSucceeded {
		t.Errorf("phase %q (%v)", got.Status.Phase, err)
	}
}

// TestOtherWriterWins: an operation that the controller of an RKEControlPlane has begun in the meantime stays as that has written it.
func TestOtherWriterWins(t *testing.T) {
	begun := false
	r := newReconciler(t, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if !begun {
				begun = true
				other := &operationv1.ETCDSnapshotSave{}
				if err := c.Get(ctx, key, other); err != nil {
					return err
				}
				other.Status.Phase = operationv1.PhaseInProgress
				if err := c.Status().Update(ctx, other); err != nil {
					return err
				}
			}
			return c.SubResource(name).Patch(ctx, o, p, opts...)
		},
	}, save(nil))
	_, err := r.of(&operationv1.ETCDSnapshotSave{}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	got := &operationv1.ETCDSnapshotSave{}
	if getErr := r.Client.Get(t.Context(), key, got); !apierrors.IsConflict(err) || getErr != nil ||
		got.Status.Phase != operationv1.PhaseInProgress {
		t.Errorf("phase %q after %v (%v)", got.Status.Phase, err, getErr)
	}
}

func TestOfCluster(t *testing.T) {
	other := save(func(op *operationv1.ETCDSnapshotSave) { op.Name, op.Spec.ClusterRef.Name = "other", "another" })
	r := newReconciler(t, interceptor.Funcs{}, save(nil), other)
	got := r.ofCluster(&operationv1.ETCDSnapshotSave{})(t.Context(), provisioning(nil))
	if len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("got %v", got)
	}
}
