package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// checkDeleted waits until a Cluster is gone and fails the test if anything of it remains.
func (e *hubEnv) checkDeleted(t *testing.T, cluster *provisioningv1.Cluster) {
	t.Helper()
	e.Gone(t, cluster)
	// A controller may write in the very moment in which the Cluster goes; the garbage collector takes that, as it belongs to the Cluster.
	e.Left(t, cluster.Namespace)
	name := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if name == "" {
		return
	}
	for _, object := range []client.Object{&managementv3.Cluster{}, &corev1.Namespace{}} {
		if err := e.Client.Get(t.Context(), client.ObjectKey{Name: name}, object); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%T %s is still there (%v)", object, name, err)
		}
	}
}

// TestDeletion: no objects and no credentials of a Cluster with machines remain.
func TestDeletion(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)
	cluster := env.newReadyCluster(t, namespace, "gone")
	for id, headers := range map[string]map[string]string{
		"server": allRoles, "worker": {rkev1.HeaderRoleWorker: "true"}, "etcd": {rkev1.HeaderRoleEtcd: "true"},
	} {
		name := env.register(t, cluster, id, headers).Labels[rkev1.MachineNameLabel]
		condition(t, env, &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, "Ready", metav1.ConditionTrue, "")
	}
	env.Delete(t, cluster)
	env.checkDeleted(t, cluster)
}

// TestDeletionIncomplete deletes Clusters that were never provisioned, or have lost a part.
func TestDeletionIncomplete(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		make func(t *testing.T, env *hubEnv, namespace string) *provisioningv1.Cluster
	}{
		{name: "at once", make: func(t *testing.T, env *hubEnv, namespace string) *provisioningv1.Cluster {
			cluster := newCluster(namespace, "half")
			env.create(t, cluster)
			return cluster
		}},
		{name: "never accepted", make: func(t *testing.T, env *hubEnv, namespace string) *provisioningv1.Cluster {
			cluster := newCluster(namespace, "half")
			cluster.Spec.KubernetesVersion = "v2.0.0+k3s1"
			env.create(t, cluster)
			condition(t, env, cluster, "Ready", metav1.ConditionFalse, "UnknownVersion")
			return cluster
		}},
		{name: "foreign infrastructure that does not exist", make: func(t *testing.T, env *hubEnv, namespace string) *provisioningv1.Cluster {
			cluster := newCluster(namespace, "half")
			cluster.Spec.RKEConfig.InfrastructureRef = &provisioningv1.ObjectReference{APIVersion: "rke.cattle.io/v1", Kind: "RKECluster",
				Name: "nowhere"}
			env.create(t, cluster)
			condition(t, env, cluster, "Created", metav1.ConditionTrue, "")
			condition(t, env, cluster, "Ready", metav1.ConditionUnknown, "WaitingForInfrastructure")
			return cluster
		}},
		{name: "without its infrastructure", make: func(t *testing.T, env *hubEnv, namespace string) *provisioningv1.Cluster {
			cluster := env.newReadyCluster(t, namespace, "half")
			env.register(t, cluster, "m", allRoles)
			env.Delete(t, &rkev1.RKECluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "half"}})
			return cluster
		}},
		{name: "without its management Cluster", make: func(t *testing.T, env *hubEnv, namespace string) *provisioningv1.Cluster {
			cluster := env.newReadyCluster(t, namespace, "half")
			env.Delete(t, &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster.Annotations[rkev1.ManagementClusterNameAnnotation]}})
			return cluster
		}},
		{name: "its Cluster API Cluster is deleted too", make: func(t *testing.T, env *hubEnv, namespace string) *provisioningv1.Cluster {
			cluster := env.newReadyCluster(t, namespace, "half")
			env.register(t, cluster, "m", allRoles)
			env.Delete(t, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "half"}})
			return cluster
		}},
		{name: "its Machines lost their Cluster", make: func(t *testing.T, env *hubEnv, namespace string) *provisioningv1.Cluster {
			cluster := env.newReadyCluster(t, namespace, "half")
			env.register(t, cluster, "m", map[string]string{rkev1.HeaderRoleWorker: "true"})
			change(t, env, cluster, func(c *provisioningv1.Cluster) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.PausedAnnotation, "")
			})
			condition(t, env, cluster, clusterv1.PausedCondition, metav1.ConditionTrue, "")
			capi := &clusterv1.Cluster{}
			env.get(t, namespace, "half", capi)
			change(t, env, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
			env.Delete(t, capi)
			until(t, "the Cluster to be taken away", func() error {
				env.get(t, namespace, "half", capi)
				before := capi.DeepCopy()
				capi.Finalizers = nil
				return env.Client.Patch(t.Context(), capi, client.MergeFrom(before))
			})
			change(t, env, cluster, func(c *provisioningv1.Cluster) { delete(c.Annotations, clusterv1.PausedAnnotation) })
			return cluster
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env, namespace := newHubEnv(t)
			cluster := tt.make(t, env, namespace)
			env.Delete(t, cluster)
			env.checkDeleted(t, cluster)
		})
	}
}

// TestDeletionPaused: a deletion that waits for a user has a condition that says so, and continues once the user has acted.
func TestDeletionPaused(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)
	for name, tt := range map[string]struct {
		pause, unpause func(*clusterv1.Cluster)
		says           string
	}{
		"held": {
			pause:   func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) },
			unpause: func(c *clusterv1.Cluster) { c.Spec.Paused = nil },
			says:    "spec.paused",
		},
		"annotated": {
			pause: func(c *clusterv1.Cluster) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.PausedAnnotation, "")
			},
			unpause: func(c *clusterv1.Cluster) { delete(c.Annotations, clusterv1.PausedAnnotation) },
			says:    clusterv1.PausedAnnotation,
		},
	} {
		cluster := env.newReadyCluster(t, namespace, name)
		capi := &clusterv1.Cluster{}
		env.get(t, namespace, name, capi)
		change(t, env, capi, tt.pause)
		env.Delete(t, cluster)
		if message := condition(t, env, cluster, "Removed", metav1.ConditionFalse, "ClusterPaused"); !strings.Contains(message, tt.says) {
			t.Errorf("Removed says %q", message)
		}
		env.get(t, namespace, name, capi)
		change(t, env, capi, tt.unpause)
		env.checkDeleted(t, cluster)
	}
}
