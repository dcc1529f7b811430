package clusters

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

// TestNameTakenLater: a Cluster whose spec is not accepted has its management Cluster, and so tokens, before somebody writes a cluster for
// Cluster API under its name. No machine gets into that cluster by them.
func TestNameTakenLater(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "prod"}
	tenant := env.Tenant(t, meta.Namespace, testenv.AllOf(provisioningv1.GroupVersion.Group))
	cluster := &provisioningv1.Cluster{ObjectMeta: meta, Spec: provisioningv1.ClusterSpec{
		KubernetesVersion: "v2.0.0+k3s1", RKEConfig: &provisioningv1.RKEConfig{}}}
	if err := tenant.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	testenv.Condition(t, env, cluster, provisioningv1.ReadyCondition, metav1.ConditionFalse, "UnknownVersion")
	env.Create(t, &rkev1.RKECluster{ObjectMeta: meta},
		&rkev1.RKEControlPlane{ObjectMeta: meta, Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1"}},
		&clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
			ControlPlaneRef:   ref(rkev1.GroupVersion.Group, "RKEControlPlane", meta.Name),
			InfrastructureRef: ref(rkev1.GroupVersion.Group, "RKECluster", meta.Name)}})
	testenv.Condition(t, env, cluster, provisioningv1.ReadyCondition, metav1.ConditionFalse, "NameTaken")
	env.Get(t, meta.Namespace, meta.Name, cluster)
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Annotations[rkev1.ManagementClusterNameAnnotation],
			Name: rkev1.MachineRequestName("intruder")},
		Type: rkev1.MachineRequestSecretType,
		Data: map[string][]byte{rkev1.MachineRequestDataKey: []byte(`{"id":["intruder"],"role-etcd":["true"],"role-control-plane":["true"]}`)},
	}
	env.Create(t, request)
	testenv.Until(t, "the machine to be refused", func() error {
		env.Get(t, request.Namespace, request.Name, request)
		if answer := request.Annotations[rkev1.MachineRequestErrorAnnotation]; !strings.Contains(answer, "was not made for this Cluster") {
			return fmt.Errorf("the answer is %q, the Machine %q", answer, request.Labels[rkev1.MachineNameLabel])
		}
		return nil
	})
	var machines clusterv1.MachineList
	if err := env.Client.List(t.Context(), &machines, client.InNamespace(meta.Namespace)); err != nil || len(machines.Items) > 0 {
		t.Errorf("there are %d Machines, %v", len(machines.Items), err)
	}
}

func ownerNames(o client.Object) (names []string) {
	for _, ref := range o.GetOwnerReferences() {
		names = append(names, ref.APIVersion+" "+ref.Kind+" "+ref.Name)
	}
	return names
}
