package clusters

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// ofRancher are the annotations that Rancher gives to what it makes for a Cluster.
func ofRancher(cluster *provisioningv1.Cluster) map[string]string {
	const prefix = "objectset.rio.cattle.io/owner-"
	return map[string]string{prefix + "gvk": "provisioning.cattle.io/v1, Kind=Cluster", prefix + "namespace": cluster.Namespace,
		prefix + "name": cluster.Name}
}

// TestTakeOverPool: a pool gets the MachineDeployment that Rancher has made for it, with its templates and replicas. No machine is
// replaced, and the condition that Rancher has left in the status stays.
func TestTakeOverPool(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	cluster := newPooled(namespace, "taken")
	workers := cluster.Spec.RKEConfig.MachinePools[1]
	cluster.Spec.RKEConfig.MachinePools = cluster.Spec.RKEConfig.MachinePools[:1]
	env.Create(t, providerObject("TestCluster", namespace, cluster.Name, map[string]any{"region": "here"}),
		machineTemplate(namespace, "machines", "small"), cluster)
	waitForMachines(t, cluster, 1)
	left := []byte(`[{"op": "add", "path": "/status/conditions/-", "value": {"type": "SecretsMigrated", "status": "True"}}]`)
	if err := env.Client.Status().Patch(t.Context(), cluster, client.RawPatch(types.JSONPatchType, left)); err != nil {
		t.Fatal(err)
	}

	const name = "taken-workers"
	template := &rkev1.RKEBootstrapTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-0123abcd",
		Labels: map[string]string{rkev1.ClusterNameLabel: cluster.Name}}}
	template.Spec.ClusterName, template.Spec.Template.Spec.ClusterName = cluster.Name, cluster.Name
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: ofRancher(cluster)}}
	md.Spec.ClusterName, md.Spec.Replicas = cluster.Name, ptr.To[int32](3)
	md.Spec.Template.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster.Name, rkev1.ClusterNameLabel: cluster.Name,
		clusterv1.MachineDeploymentNameLabel: name, rkev1.MachinePoolNameLabel: "workers", rkev1.WorkerRoleLabel: "true",
		rkev1.OSLabel: "linux"}
	md.Spec.Template.Spec.ClusterName = cluster.Name
	md.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrapTemplate", Name: template.Name}
	md.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infraGroup, Kind: "TestMachineTemplate", Name: "machines"}
	env.Create(t, template, md)
	before := map[types.UID]bool{}
	for _, machine := range waitForMachines(t, cluster, 4) {
		before[machine.UID] = true
	}

	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.MachinePools = append(c.Spec.RKEConfig.MachinePools, workers)
	})
	quantity(t, cluster, 3)
	testenv.Until(t, "the MachineDeployment to be reconciled", func() error {
		env.Get(t, namespace, name, md)
		if md.Status.ObservedGeneration != md.Generation || !metav1.IsControlledBy(md, cluster) {
			return fmt.Errorf("generation %d of %d, owners %+v", md.Status.ObservedGeneration, md.Generation, md.OwnerReferences)
		}
		env.Get(t, namespace, cluster.Name, cluster)
		if cluster.Status.ObservedGeneration != cluster.Generation {
			return fmt.Errorf("the status is about generation %d of %d", cluster.Status.ObservedGeneration, cluster.Generation)
		}
		return nil
	})
	spec := md.Spec.Template.Spec
	if spec.Bootstrap.ConfigRef.Name != template.Name || spec.InfrastructureRef.Name != "machines" {
		t.Errorf("it refers to %s and %s", spec.Bootstrap.ConfigRef.Name, spec.InfrastructureRef.Name)
	}
	for _, machine := range waitForMachines(t, cluster, 4) {
		if !before[machine.UID] {
			t.Errorf("Machine %s is new", machine.Name)
		}
	}
	var sets clusterv1.MachineSetList
	err := env.Client.List(t.Context(), &sets, client.InNamespace(namespace),
		client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: name})
	if err != nil || len(sets.Items) != 1 {
		t.Errorf("%d MachineSets (%v)", len(sets.Items), err)
	}
	found := false
	for _, condition := range cluster.Status.Conditions {
		found = found || condition.Type == "SecretsMigrated" && condition.Reason == ""
	}
	if !found {
		t.Errorf("the condition of Rancher is gone: %+v", cluster.Status.Conditions)
	}
}

// TestTakeOverManagement: a Cluster keeps the management Cluster that Rancher has made for it, and gets no other one by naming it.
func TestTakeOverManagement(t *testing.T) {
	t.Parallel()
	for what, annotated := range map[string]bool{"mine": true, "foreign": false} {
		t.Run(what, func(t *testing.T) {
			cluster := pooled(t, what)
			name := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
			capi := &clusterv1.Cluster{}
			env.Get(t, cluster.Namespace, cluster.Name, capi)
			testenv.Change(t, env, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
			testenv.Until(t, "the Cluster to be paused", func() error {
				env.Get(t, cluster.Namespace, cluster.Name, cluster)
				for _, condition := range cluster.Status.Conditions {
					if condition.Type == clusterv1.PausedCondition && condition.Status == metav1.ConditionTrue {
						return nil
					}
				}
				return fmt.Errorf("its conditions are %+v", cluster.Status.Conditions)
			})
			management, own := &managementv3.Cluster{}, &corev1.Namespace{}
			env.Get(t, "", name, management)
			env.Get(t, "", name, own)
			testenv.Change(t, env, management, func(m *managementv3.Cluster) {
				delete(m.Labels, rkev1.OwnerClusterNamespaceLabel)
				delete(m.Labels, rkev1.OwnerClusterNameLabel)
				if annotated {
					m.Annotations = ofRancher(cluster)
				}
			})
			testenv.Change(t, env, own, func(n *corev1.Namespace) {
				delete(n.Labels, rkev1.OwnerClusterNamespaceLabel)
				delete(n.Labels, rkev1.OwnerClusterNameLabel)
			})
			testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) {
				delete(c.Annotations, rkev1.ManagementClusterNameAnnotation)
			})
			if cluster.Status.ClusterName != name {
				t.Fatalf("status.clusterName is %q, want %q", cluster.Status.ClusterName, name)
			}
			testenv.Change(t, env, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
			testenv.Until(t, "the Cluster to have a management Cluster", func() error {
				env.Get(t, cluster.Namespace, cluster.Name, cluster)
				if cluster.Annotations[rkev1.ManagementClusterNameAnnotation] == "" {
					return fmt.Errorf("its annotations are %v", cluster.Annotations)
				}
				return nil
			})
			if got := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]; (got == name) != annotated {
				t.Errorf("it has %s, and had %s", got, name)
			}
			env.Get(t, "", name, own)
			if labeled := own.Labels[rkev1.OwnerClusterNameLabel] == cluster.Name; labeled != annotated {
				t.Errorf("the namespace has the labels %v", own.Labels)
			}
		})
	}
}
