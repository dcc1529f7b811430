package managementcluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/objects"
)

// TestKubeconfigOfTakenName: an imported Cluster gets no kubeconfig Secret where Cluster API would use it for a Cluster of its own.
func TestKubeconfigOfTakenName(t *testing.T) {
	for name, taken := range map[string]bool{"free": false, "taken": true} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: "fleet", Name: "prod", UID: "p"}
			s := &scope{management: &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-a"}},
				cluster: &provisioningv1.Cluster{ObjectMeta: meta}}
			existing := []client.Object{s.management, s.cluster}
			if taken {
				existing = append(existing, &clusterv1.Cluster{ObjectMeta: meta})
			}
			scheme := fakeclient.Scheme(t, corev1.AddToScheme, managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(existing...).Build()
			r := &Reconciler{Client: c, Secrets: c, Access: &tunnelaccess.Access{
				Settings: settings.Settings{ServerURL: "https://hub"}, Presence: present{}, Client: c, Live: c, Now: time.Now,
				Issue: func(user.Info, string, time.Duration, string, bool) (string, error) { return "token", nil },
			}}
			if _, err := r.reconcileKubeconfig(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			key := client.ObjectKey{Namespace: "fleet", Name: "prod-kubeconfig"}
			if found, err := objects.Get(t.Context(), c, key, &corev1.Secret{}); err != nil || found == taken {
				t.Errorf("the Secret exists: %t, %v", found, err)
			}
		})
	}
}
