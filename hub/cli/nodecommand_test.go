package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestNodeCommandIsRefused: no command is printed with which no machine could register, and the error says what to do instead.
func TestNodeCommandIsRefused(t *testing.T) {
	management := func(name, cluster string) *managementv3.Cluster {
		return &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{rkev1.OwnerClusterNamespaceLabel: "ns", rkev1.OwnerClusterNameLabel: cluster}}}
	}
	cluster := func(name, management string) *provisioningv1.Cluster {
		return &provisioningv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{
				rkev1.ManagementClusterNameAnnotation: management}},
			Status: provisioningv1.ClusterStatus{ClusterName: management},
		}
	}
	imported, ending := cluster("imported", "c-m-1"), cluster("ending", "c-m-2")
	ending.Spec.RKEConfig = &provisioningv1.RKEConfig{}
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.NewTime(time.Unix(1, 0))), []string{"a/b"}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, managementv3.AddToScheme, provisioningv1.AddToScheme)).
		WithObjects(imported, ending, management("c-m-1", "imported"), management("c-m-2", "ending")).Build()
	for name, want := range map[string]string{
		"imported": "the Cluster ns/imported has no spec.rkeConfig",
		"ending":   "the Cluster ns/ending is being deleted",
		"none":     "there is no Cluster ns/none",
	} {
		command, err := (&nodeOptions{worker: true}).run(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: name})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %q, %v", name, command, err)
		}
	}
}
