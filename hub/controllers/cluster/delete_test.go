package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

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
