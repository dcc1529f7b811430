package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/objects"
)

// TestForeignNames: the hub does nothing to Clusters of Rancher that it does not manage, but lets them go when they are deleted.
func TestForeignNames(t *testing.T) {
	const held = "wrangler.cattle.io/provisioning-cluster-remove"
	for _, name := range []string{"local", "c-abcde", "c-m-abcdefgh"} {
		for _, deleted := range []bool{false, true} {
			cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Finalizers: []string{held}}}
			key := client.ObjectKeyFromObject(cluster)
			c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, provisioningv1.AddToScheme)).WithObjects(cluster).
				WithStatusSubresource(cluster).Build()
			if deleted {
				if err := c.Delete(t.Context(), cluster); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := (&Reconciler{Client: c, Live: c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			left := &provisioningv1.Cluster{}
			found, err := objects.Get(t.Context(), c, key, left)
			if err != nil || found == deleted {
				t.Fatalf("%s, deleted: %v: it exists: %v (%v)", name, deleted, found, err)
			}
			if found && (len(left.Finalizers) != 1 || len(left.Status.Conditions) > 0 || len(left.Annotations) > 0) {
				t.Errorf("%s was changed: %+v", name, left)
			}
		}
	}
	if hasForeignName(testCluster()) {
		t.Error("a Cluster of the hub is not managed")
	}
}
