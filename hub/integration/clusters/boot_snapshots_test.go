package clusters

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/workload"
	"github.com/drover-dev/drover/plans"
)

func snapshotFile(name, node string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k3s.cattle.io/v1", "kind": "ETCDSnapshotFile", "metadata": map[string]any{"name": name},
		"spec":   map[string]any{"snapshotName": name, "nodeName": node, "location": "file:///snapshots/" + name},
		"status": map[string]any{"size": "1Mi", "creationTime": "2026-11-01T00:00:00Z", "readyToUse": true},
	}}
}

// TestETCDSnapshots: an ETCDSnapshot follows what the cluster lists. It is missing, but there, when the cluster does not list it any more
// or its node is gone, and deleted later.
func TestETCDSnapshots(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "snapshots", nil)
	api := workload.Start()
	t.Cleanup(api.Stop)
	kubeconfig, err := api.KubeconfigSecret(r.Cluster.Namespace, r.Cluster.Name)
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, kubeconfig)
	m := r.Register("snapshots", "192.0.2.9", "etcd", "control-plane", "worker")
	m.AwaitPlan("")
	m.Take()
	m.Succeed()
	kubelet(t, api, m, true)
	machine := &clusterv1.Machine{}
	testenv.Until(t, "the Machine to have its Node", func() error {
		r.Read(m.Name, machine)
		if !machine.Status.NodeRef.IsDefined() {
			return fmt.Errorf("it has none")
		}
		return nil
	})

	api.SetSnapshotFile(snapshotFile("kept", m.Name))
	api.SetSnapshotFile(snapshotFile("pruned", m.Name))
	api.SetSnapshotFile(snapshotFile("lost", "another-node"))
	snapshot := func(file string, missing bool) *rkev1.ETCDSnapshot {
		t.Helper()
		found := &rkev1.ETCDSnapshot{}
		testenv.Until(t, fmt.Sprintf("ETCDSnapshot %s, missing: %t", file, missing), func() error {
			key := client.ObjectKey{Namespace: r.Cluster.Namespace, Name: r.Cluster.Name + "-" + file}
			if err := env.Client.Get(t.Context(), key, found); err != nil {
				return err
			}
			if found.Status.Missing != missing || (found.Status.MissingSince != nil) != missing {
				return fmt.Errorf("its status is %+v", found.Status)
			}
			return nil
		})
		return found
	}
	var kept *rkev1.ETCDSnapshot
	testenv.Until(t, "the ETCDSnapshot to belong to its Machine", func() error {
		kept = snapshot("kept", false)
		if len(kept.OwnerReferences) != 2 || kept.OwnerReferences[0].UID != machine.UID || kept.SnapshotFile.Size != 1<<20 ||
			kept.Labels[rkev1.ClusterNameLabel] != r.Cluster.Name {
			return fmt.Errorf("got %+v of Machine %s", kept, machine.UID)
		}
		return nil
	})
	snapshot("lost", true)
	snapshot("pruned", false)

	// What the machine reports of a file that it has saved is written into its ETCDSnapshot, and into no other.
	sum := strings.Repeat("a", 64)
	m.Report(func(s *plans.Status, _ plans.Plan) {
		s.AppliedOutput = map[string][]byte{"etcd-snapshot-save": []byte("sha256 " + sum + " /snapshots/" + kept.SnapshotFile.Name + "\n")}
	})
	testenv.Until(t, "the checksum of a snapshot", func() error {
		if got := snapshot("kept", false).Annotations[rkev1.SnapshotSHA256Annotation]; got != sum {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	if got := snapshot("pruned", false).Annotations[rkev1.SnapshotSHA256Annotation]; got != "" {
		t.Errorf("another snapshot has the checksum %q", got)
	}

	own := kept.DeepCopy()
	own.ObjectMeta = metav1.ObjectMeta{Namespace: kept.Namespace, Name: "by-a-user", Labels: kept.Labels}
	env.Create(t, own)
	api.DeleteSnapshotFile("pruned")
	pruned := snapshot("pruned", true)
	setMissingSince(t, pruned, time.Now().Add(-time.Hour))
	lost := snapshot("lost", true)
	api.DeleteSnapshotFile("lost")
	setMissingSince(t, lost, time.Now().Add(-time.Hour))
	api.SetSnapshotFile(snapshotFile("new", m.Name))
	snapshot("new", false)
	env.Gone(t, pruned)
	snapshot("lost", true)

	api.DeleteNode(m.Name)
	snapshot("kept", true)
	api.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}})
	snapshot("kept", false)
	env.Delete(t, snapshot("kept", false))
	snapshot("kept", false)
	env.Get(t, own.Namespace, own.Name, own)
	if own.Status.Missing {
		t.Errorf("an ETCDSnapshot of a user has the status %+v", own.Status)
	}
}

// setMissingSince changes a status, of which there is no event for the controller, and then an annotation: when the controller gets that
// event, its cache has both.
func setMissingSince(t *testing.T, snapshot *rkev1.ETCDSnapshot, since time.Time) {
	t.Helper()
	base, at := snapshot.DeepCopy(), metav1.NewTime(since)
	snapshot.Status.MissingSince = &at
	if err := env.Client.Status().Patch(t.Context(), snapshot, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	base = snapshot.DeepCopy()
	metav1.SetMetaDataAnnotation(&snapshot.ObjectMeta, "test/missing-since", since.String())
	if err := env.Client.Patch(t.Context(), snapshot, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
}
