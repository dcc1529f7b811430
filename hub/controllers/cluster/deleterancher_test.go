package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/patch"
)

// TestDeletionBeforeTheFinalizer: a Cluster of Rancher that was deleted while it was paused never got the hub's finalizer. It is deleted
// as any other one. One that another program keeps is that program's.
func TestDeletionBeforeTheFinalizer(t *testing.T) {
	for finalizer, deletes := range map[string]bool{"wrangler.cattle.io/provisioning-cluster-remove": true, "example.com/keep": false} {
		cluster, name := testCluster(), "c-m-rancher2"
		cluster.Annotations, cluster.Status.ClusterName = nil, name
		cluster.DeletionTimestamp, cluster.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{finalizer}
		capi := capiCluster(cluster)
		capi.Finalizers = []string{clusterv1.ClusterFinalizer}
		management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: ofRancher(cluster.Namespace, cluster.Name)}}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, managementv3.AddToScheme, corev1.AddToScheme, clusterv1.AddToScheme,
			rkev1.AddToScheme)
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, capi, management, namespace).Build()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		s := &scope{cluster: cluster, patch: patch.NewHelper(c, cluster, fieldOwner)}
		if err := (&Reconciler{Client: c, Live: c}).reconcileDelete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if waits := s.removal != nil && s.removal.Reason == "WaitingForClusterAPI"; waits != deletes {
			t.Errorf("%s: it waits for %+v", finalizer, s.removal)
		}
		found, err := objects.Get(t.Context(), c, client.ObjectKeyFromObject(namespace), namespace)
		if err != nil || found == deletes {
			t.Errorf("%s: the namespace of the management Cluster exists: %v (%v)", finalizer, found, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(capi), capi); err != nil || capi.DeletionTimestamp.IsZero() == deletes {
			t.Errorf("%s: the Cluster API Cluster is deleted at %v (%v)", finalizer, capi.DeletionTimestamp, err)
		}
	}
}
