//go:build e2e && full

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestRestorePool restores a snapshot of three servers on one that is not the init node, and kills the hub in each step.
func TestRestorePool(t *testing.T) { restorePool(t, lab.K3s, "etcd") }

// TestRestorePoolRKE2 does so with a cluster of RKE2.
func TestRestorePoolRKE2(t *testing.T) {
	suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	restorePool(t, lab.RKE2, "etcdr")
}

func restorePool(t *testing.T, d lab.Distribution, cluster string) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: namespace, Name: cluster}
	before := shared.Settled(t, namespace)
	suite.Step(t, "three servers and a worker come up", func(t *testing.T) {
		apply(t, "etcd.yaml", key, "VERSION", d.Version)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 15*time.Minute))
		waitNodes(t, key, 3, 1, 5*time.Minute)
		checkMembers(t, key, 3)
		writeData(t, key)
	})
	var snapshot *rkev1.ETCDSnapshot
	suite.Step(t, "a snapshot is saved on each server", func(t *testing.T) {
		save := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-before"}}
		save.Spec.Spec = suite.OperationSpec(key)
		suite.Must(t, shared.Hub.Create(ctx, save))
		shared.WaitOperation(t, save, nil)
		waitFor(t, "a snapshot of a server that is not the init node is listed", 2*time.Minute, func(ctx context.Context) (bool, string) {
			snapshot = snapshotBeside(ctx, t, key)
			return snapshot != nil, "it is not"
		})
	})
	suite.Step(t, "it is restored, and all servers have its data", func(t *testing.T) {
		c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
		suite.Must(t, err)
		lost := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "lost"}}
		suite.Must(t, c.Create(ctx, lost))
		restore := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-restore"}}
		restore.Spec.Spec, restore.Spec.Args.Name = suite.OperationSpec(key), snapshot.Name
		suite.Must(t, shared.Hub.Create(ctx, restore))
		shared.WaitOperation(t, restore, func(string) { shared.RestartHub(t) })
		if restore.Status.MachineName != snapshot.Labels[rkev1.MachineNameLabel] {
			t.Errorf("restored on %s, the file is on %s", restore.Status.MachineName, snapshot.Labels[rkev1.MachineNameLabel])
		}
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
		waitNodes(t, key, 3, 1, 5*time.Minute)
		checkMembers(t, key, 3)
		checkData(t, key)
		waitFor(t, "what was written after the snapshot is not there", 2*time.Minute, func(ctx context.Context) (bool, string) {
			c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
			if err == nil {
				err = c.Get(ctx, client.ObjectKeyFromObject(lost), lost)
			}
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
	})
	suite.Step(t, "a deleted Cluster takes everything with it", func(t *testing.T) { deleteCluster(t, poolsOf(t, key), before) })
}

// snapshotBeside is an on-demand snapshot on a server that is not the init node; nil until one is listed.
func snapshotBeside(ctx context.Context, t *testing.T, key client.ObjectKey) *rkev1.ETCDSnapshot {
	t.Helper()
	secrets := &corev1.SecretList{}
	suite.Must(t, shared.Hub.List(ctx, secrets, client.InNamespace(key.Namespace), client.MatchingLabels{
		rkev1.ClusterNameLabel: key.Name, rkev1.InitNodeLabel: "true"}))
	if len(secrets.Items) != 1 {
		t.Fatalf("%d machines are the init node", len(secrets.Items))
	}
	snapshots := &rkev1.ETCDSnapshotList{}
	suite.Must(t, shared.Hub.List(ctx, snapshots, client.InNamespace(key.Namespace), client.MatchingLabels{rkev1.ClusterNameLabel: key.Name}))
	for i := range snapshots.Items {
		s := &snapshots.Items[i]
		machine := s.Labels[rkev1.MachineNameLabel]
		if strings.HasPrefix(s.SnapshotFile.Name, "on-demand") && machine != "" && machine != secrets.Items[0].Labels[rkev1.MachineNameLabel] {
			return s
		}
	}
	return nil
}
