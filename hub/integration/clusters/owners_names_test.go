package clusters

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestTakenName: a tenant who may create Clusters of provisioning.cattle.io, and nothing else, neither changes nor deletes what was written
// for Cluster API under the same name.
func TestTakenName(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	tenant := env.Tenant(t, namespace, testenv.AllOf(provisioningv1.GroupVersion.Group))
	native := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prod", Labels: map[string]string{"team": "a"}},
		Spec: clusterv1.ClusterSpec{
			Paused: new(true), // nothing else is of interest
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "DevCluster",
				Name: "prod"},
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
				Name: "prod"},
		}}
	plane := &rkev1.RKEControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "servers", Labels: map[string]string{"team": "a"}},
		Spec:       rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.34.2+k3s1", ClusterName: "other"}}
	for name, object := range map[string]client.Object{"prod": native, "servers": plane} {
		env.Create(t, object)
		before := object.DeepCopyObject().(client.Object)
		env.Get(t, namespace, name, before)
		cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: provisioningv1.ClusterSpec{KubernetesVersion: "v1.35.6+k3s1", RKEConfig: &provisioningv1.RKEConfig{}}}
		if err := tenant.Create(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		message := testenv.Condition(t, env, cluster, provisioningv1.ReadyCondition, metav1.ConditionFalse, "NameTaken")
		if !strings.Contains(message, name+" exists and was not made for this Cluster") {
			t.Errorf("%s: the message is %q", name, message)
		}
		if err := tenant.Delete(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		env.Gone(t, cluster)
		after := object.DeepCopyObject().(client.Object)
		env.Get(t, namespace, name, after)
		if !after.GetDeletionTimestamp().IsZero() || after.GetGeneration() != before.GetGeneration() ||
			!slices.Equal(ownerNames(after), ownerNames(before)) {
			t.Errorf("%s: it is changed: %s", name, cmp.Diff(before, after))
		}
		if diff := cmp.Diff(before.GetLabels(), after.GetLabels()); diff != "" {
			t.Errorf("%s: its labels are changed: %s", name, diff)
		}
	}
}

func ownerNames(o client.Object) (names []string) {
	for _, ref := range o.GetOwnerReferences() {
		names = append(names, ref.APIVersion+" "+ref.Kind+" "+ref.Name)
	}
	return names
}
