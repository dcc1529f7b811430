package clusters

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/workload"
	"github.com/drover-dev/drover/hub/util/clusterspec"
)

// TestETCDSnapshotRestoreOnNewMachine: when all servers are lost, a snapshot in S3 brings the cluster back on a machine that was never
// given a plan, and the Node of the lost server is deleted.
func TestETCDSnapshotRestoreOnNewMachine(t *testing.T) {
	t.Parallel()
	s3 := func(config *provisioningv1.RKEConfig) {
		config.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Endpoint: "s3.example.com", Bucket: "backups"}}
	}
	c := &restoredCluster{FakeCluster: env.NewCluster(t, "lost", nil, s3), api: workload.Start(), last: map[string]string{}}
	t.Cleanup(c.api.Stop)
	kubeconfig, err := c.api.KubeconfigSecret(c.Cluster.Namespace, c.Cluster.Name)
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, kubeconfig)
	old := c.Register("old", "192.0.2.41", "etcd", "control-plane", "worker")
	c.do("install", old)
	kubelet(t, c.api, old, true)
	c.AwaitCondition(c.ControlPlane(), rkev1.ReadyCondition, metav1.ConditionTrue, "Ready", "")

	c.api.ChangeNode(old.Name, func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown })
	machine := &clusterv1.Machine{}
	c.Read(old.Name, machine)
	testenv.Change(t, env, machine, func(m *clusterv1.Machine) { m.Annotations[rkev1.EtcdForceRemoveAnnotation] = "true" })
	env.Delete(t, machine)
	env.Gone(t, machine)
	stale := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: map[string]string{rollout.EtcdRoleLabel: "true"}}}
	stale.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	c.api.SetNode(stale) // the snapshot has it
	fresh := c.Register("fresh", "192.0.2.42", "etcd", "control-plane", "worker")
	plane := c.ControlPlane()
	c.Wait("the control plane to say that the data is lost", func() error {
		c.Read(plane.Name, plane)
		if ready := conditions.Get(plane, rkev1.ReadyCondition); ready == nil || ready.Reason != rollout.ReasonEtcdLost {
			return fmt.Errorf("it says %+v", ready)
		}
		return nil
	})

	env.Create(t, &rkev1.ETCDSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Cluster.Namespace, Name: "snapshot",
			Labels: map[string]string{rkev1.ClusterNameLabel: c.Cluster.Name}},
		Spec:         rkev1.ETCDSnapshotSpec{ClusterName: c.Cluster.Name},
		SnapshotFile: rkev1.ETCDSnapshotFile{Name: "s", Location: "s3://backups/s", S3: &rkev1.ETCDSnapshotS3{Bucket: "backups"}},
	})
	c.restore("from-s3")
	c.do("etcd-snapshot-check", fresh)
	c.do("stop", fresh)
	plan, got := c.take(fresh)
	if got != "install etcd-snapshot-restore" || !slices.Contains(plan.Instructions[0].Env, "INSTALL_K3S_SKIP_START=true") ||
		!slices.Contains(plan.Instructions[1].Args, "--cluster-reset-restore-path=s") ||
		!slices.Contains(plan.Instructions[1].Args, "--etcd-s3") {
		t.Fatalf("the restore is %q: %+v", got, plan.Instructions)
	}
	fresh.Succeed()
	c.do("install start", fresh)
	kubelet(t, c.api, fresh, true)
	if text := c.ends("from-s3", operationv1.PhaseSucceeded); !strings.Contains(text, fresh.Name) {
		t.Errorf("it says %q", text)
	}
	if c.api.Node(old.Name) != nil {
		t.Error("the Node of the lost server is still there")
	}
	c.do("install", fresh)
	c.AwaitCondition(c.ControlPlane(), rkev1.ReadyCondition, metav1.ConditionTrue, "Ready", "")
}

// TestETCDSnapshotRestoreOfVersion: the version of the snapshot is in the Cluster before anything is delivered, and the machine is restored
// with it. A restore that was asked for before the snapshot exists waits for it.
func TestETCDSnapshotRestoreOfVersion(t *testing.T) {
	t.Parallel()
	c := &restoredCluster{FakeCluster: env.NewCluster(t, "version", nil), api: workload.Start(), last: map[string]string{}}
	t.Cleanup(c.api.Stop)
	kubeconfig, err := c.api.KubeconfigSecret(c.Cluster.Namespace, c.Cluster.Name)
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, kubeconfig)
	m := c.Register("m", "192.0.2.51", "etcd", "control-plane", "worker")
	c.do("install", m)
	kubelet(t, c.api, m, true)
	c.AwaitCondition(c.ControlPlane(), rkev1.ReadyCondition, metav1.ConditionTrue, "Ready", "")

	const earlier = "v1.35.1+k3s1"
	c.Read(c.Cluster.Name, c.Cluster)
	had := c.Cluster.Spec.DeepCopy()
	had.KubernetesVersion = earlier
	encoded, err := clusterspec.Encode(*had)
	if err != nil {
		t.Fatal(err)
	}
	metadata, _ := json.Marshal(map[string]string{clusterspec.MetadataKey: encoded})
	testenv.Change(t, env, c.Cluster, func(cluster *provisioningv1.Cluster) {
		cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "snapshot", Generation: 1,
			RestoreRKEConfig: "kubernetesVersion"}
	})
	c.AwaitCondition(c.Cluster, provisioningv1.UpdatedCondition, metav1.ConditionFalse, "SnapshotNotFound", "The change was not passed on: "+
		`spec.rkeConfig.etcdSnapshotRestore.name: ETCDSnapshot "snapshot" does not exist in the namespace of the Cluster; `+
		"correct the name, or remove etcdSnapshotRestore")
	env.Create(t, &rkev1.ETCDSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Cluster.Namespace, Name: "snapshot", Labels: map[string]string{
			rkev1.ClusterNameLabel: c.Cluster.Name, rkev1.MachineNameLabel: m.Name}},
		Spec:         rkev1.ETCDSnapshotSpec{ClusterName: c.Cluster.Name},
		SnapshotFile: rkev1.ETCDSnapshotFile{Name: "s", Location: "file:///s", Metadata: base64.StdEncoding.EncodeToString(metadata)},
	})
	c.do("install etcd-snapshot-check", m)
	plane := c.ControlPlane()
	if c.Read(plane.Name, plane); plane.Annotations[rkev1.UnrestoredConfigurationAnnotation] != "snapshot/1" {
		t.Errorf("before the data is restored, the RKEControlPlane has the annotations %v", plane.Annotations)
	}
	if c.Read(c.Cluster.Name, c.Cluster); c.Cluster.Spec.KubernetesVersion != earlier {
		t.Errorf("the Cluster has the version %s", c.Cluster.Spec.KubernetesVersion)
	}
	c.do("stop", m)
	plan, got := c.take(m)
	if got != "install etcd-snapshot-restore" || !strings.Contains(plan.Instructions[0].Image, strings.ReplaceAll(earlier, "+", "-")) {
		t.Fatalf("the restore is %q: %+v", got, plan.Instructions)
	}
	m.Succeed()
	c.do("install start", m)
	c.ends(c.Cluster.Name+"-restore-1", operationv1.PhaseSucceeded)
	if c.Read(plane.Name, plane); plane.Annotations[rkev1.UnrestoredConfigurationAnnotation] != "" {
		t.Errorf("the data is restored, and the RKEControlPlane has the annotations %v", plane.Annotations)
	}
}
