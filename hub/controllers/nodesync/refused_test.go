package nodesync

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestRefusedChange: a cluster that does not take a label of a Node is shown, until it does.
func TestRefusedChange(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	key := client.ObjectKey{Namespace: "ns", Name: "c"}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "machine"},
		Spec: clusterv1.MachineSpec{ClusterName: "c"}}
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
		Name: "a"}
	machine.Status.NodeRef.Name = "node-a"
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "bootstrap",
		Labels:          map[string]string{rkev1.WorkerRoleLabel: "true"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(bootstrap).
		WithObjects(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}, machine, bootstrap).Build()
	var refused error = apierrors.NewForbidden(corev1.Resource("nodes"), "node-a", errors.New("no such labels"))
	remote := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			if refused != nil {
				return refused
			}
			return c.Patch(ctx, o, p, opts...)
		}}).Build()
	r := &Reconciler{Client: c, Cache: c, ClusterCache: clustercache.NewFakeClusterCache(remote, key, controllerName+"-nodes")}
	reconcile := func() (*metav1.Condition, error) {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(bootstrap)})
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(bootstrap), bootstrap); err != nil {
			t.Fatal(err)
		}
		return conditions.Get(bootstrap, rkev1.NodeSyncedCondition), err
	}
	if got, err := reconcile(); !errors.Is(err, refused) || got == nil || got.Status != metav1.ConditionFalse || got.Reason != "Refused" ||
		!strings.Contains(got.Message, "no such labels") {
		t.Errorf("refused: %+v, %v", got, err)
	}
	refused = nil
	if got, err := reconcile(); err != nil || got == nil || got.Status != metav1.ConditionTrue {
		t.Errorf("taken: %+v, %v", got, err)
	}
}
