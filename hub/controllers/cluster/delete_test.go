package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestDeletionThatFails: a Cluster of which nothing could be looked at is not removed.
func TestDeletionThatFails(t *testing.T) {
	cluster := testCluster()
	cluster.DeletionTimestamp, cluster.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{Finalizer}
	away := errors.New("the API server is unreachable")
	live := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away
		},
	}).Build()
	s := &scope{cluster: cluster}
	if err := (&Reconciler{Client: live, Live: live}).reconcileDelete(t.Context(), s); !errors.Is(err, away) {
		t.Errorf("the error is %v", err)
	}
	setStatus(s)
	removed := conditions.Get(cluster, provisioningv1.RemovedCondition)
	if removed == nil || removed.Status != metav1.ConditionFalse || removed.Reason != "Error" || len(cluster.Finalizers) == 0 {
		t.Errorf("Removed is %+v, the finalizers are %v", removed, cluster.Finalizers)
	}
}

// TestDeletionThatOrphans: the machines of a Cluster that is deleted with --cascade=orphan stay. Nothing is deleted before the garbage
// collector has taken the Cluster out of the owners of what it has created.
func TestDeletionThatOrphans(t *testing.T) {
	cluster := testCluster()
	cluster.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	cluster.Finalizers = []string{Finalizer, metav1.FinalizerOrphanDependents}
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name,
			UID: cluster.UID}}}}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme, corev1.AddToScheme, managementv3.AddToScheme)).
		WithObjects(capi).Build()
	reconcile := func() *scope {
		t.Helper()
		s := &scope{cluster: cluster}
		if err := (&Reconciler{Client: c, Live: c}).reconcileDelete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(capi), capi); err != nil || !capi.DeletionTimestamp.IsZero() {
			t.Fatalf("the Cluster API Cluster is deleted at %v (%v)", capi.DeletionTimestamp, err)
		}
		return s
	}
	if s := reconcile(); s.removal == nil || s.removal.Reason != "WaitingForGarbageCollector" || len(cluster.Finalizers) != 2 {
		t.Errorf("it waits for %+v, the finalizers are %v", s.removal, cluster.Finalizers)
	}
	capi.OwnerReferences, cluster.Finalizers = nil, []string{Finalizer}
	if err := c.Update(t.Context(), capi); err != nil {
		t.Fatal(err)
	}
	if s := reconcile(); s.removal != nil || len(cluster.Finalizers) > 0 {
		t.Errorf("it waits for %+v, the finalizers are %v", s.removal, cluster.Finalizers)
	}
}
