//go:build e2e && full

package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestRestoreLost loses the only machine of a cluster for ever, and brings the cluster back on a new one from a snapshot in S3.
func TestRestoreLost(t *testing.T) { restoreLost(t, lab.K3s, "lost") }

// TestRestoreLostRKE2 does so with a cluster of RKE2.
func TestRestoreLostRKE2(t *testing.T) {
	suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	restoreLost(t, lab.RKE2, "lostr")
}

func restoreLost(t *testing.T, d lab.Distribution, cluster string) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: cluster}
	first, second := shared.NewHost(t, cluster+"1"), shared.NewHost(t, cluster+"2")
	shared.MakeNamespace(t, key.Namespace)
	bucket := makeBucket(t, key.Namespace)
	var command, snapshot string
	suite.Step(t, "a machine makes a cluster, and a snapshot is in the bucket", func(t *testing.T) {
		suite.Must(t, shared.ApplyClusterVersion(ctx, shared.Hub, key, d.Version))
		useBucket(t, key, bucket)
		var err error
		command, _, err = shared.TokenCommand(ctx, shared.Hub, key, lab.AllRoles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, first, command))
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 10*time.Minute))
		writeData(t, key, "kept", "before the snapshot")
		_, snapshot = saveSnapshot(t, first, key, bucket)
	})
	suite.Step(t, "while the bucket does not answer, a restore stops nothing", func(t *testing.T) {
		restoreWithoutBucket(t, key, snapshot)
	})
	suite.Step(t, "the machine is lost and its Machine deleted, and another one waits", func(t *testing.T) {
		lost, err := shared.WaitMachine(ctx, shared.Hub, key)
		suite.Must(t, err)
		suite.Must(t, first.Kill())
		base := lost.DeepCopy()
		lost.Annotations[rkev1.EtcdForceRemoveAnnotation] = "true"
		// Nobody drains the Node of a cluster that has no API.
		lost.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = "true"
		lost.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation] = "true"
		suite.Must(t, shared.Hub.Patch(ctx, lost, client.MergeFrom(base)))
		suite.Must(t, shared.Hub.Delete(ctx, lost))
		suite.Must(t, shared.WaitFor(ctx, "the Machine is gone", 10*time.Minute, func(ctx context.Context) (bool, string) {
			err := shared.Hub.Get(ctx, client.ObjectKeyFromObject(lost), lost)
			return client.IgnoreNotFound(err) == nil && err != nil, "it is not"
		}))
		suite.Must(t, shared.Register(ctx, second, command))
		suite.Must(t, shared.WaitFor(ctx, "the control plane says that the data is lost", 5*time.Minute,
			func(ctx context.Context) (bool, string) {
				plane := &rkev1.RKEControlPlane{}
				if err := shared.Hub.Get(ctx, key, plane); err != nil {
					return false, err.Error()
				}
				reason := conditions.GetReason(plane, rkev1.ReadyCondition)
				return reason == "EtcdLost", reason
			}))
	})
	suite.Step(t, "with another token the restore fails, and says why", func(t *testing.T) { restoreWithWrongToken(t, key, snapshot) })
	suite.Step(t, "with the token of the snapshot it brings the cluster back", func(t *testing.T) {
		restore := &operationv1.ETCDSnapshotRestore{}
		restore.Namespace, restore.Name = key.Namespace, key.Name
		restore.Spec.Spec = suite.OperationSpec(key)
		restore.Spec.Args.Name = snapshot
		suite.Must(t, shared.Hub.Create(ctx, restore))
		suite.Must(t, shared.WaitFor(ctx, "it is restored", 15*time.Minute, func(ctx context.Context) (bool, string) {
			if err := shared.Hub.Get(ctx, client.ObjectKeyFromObject(restore), restore); err != nil {
				return false, err.Error()
			}
			if restore.Status.Phase.Ended() && restore.Status.Phase != operationv1.PhaseSucceeded {
				t.Fatalf("it has ended: %+v", restore.Status)
			}
			return restore.Status.Phase == operationv1.PhaseSucceeded, restore.Status.Step
		}))
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
		if got := readData(t, key, "kept"); got != "before the snapshot" {
			t.Errorf("the data is %q", got)
		}
		_, err := shared.RunHello(ctx, shared.Hub, key, 5*time.Minute)
		suite.Must(t, err)
	})
	shared.DeleteCluster(t, key)
}

// restoreWithoutBucket restores a snapshot while the S3 server is down.
func restoreWithoutBucket(t *testing.T, key client.ObjectKey, snapshot string) {
	ctx := t.Context()
	suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	suite.Must(t, shared.StopObjectStore())
	restore := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-no-bucket"}}
	restore.Spec.Spec, restore.Spec.Args.Name = suite.OperationSpec(key), snapshot
	suite.Must(t, shared.Hub.Create(ctx, restore))
	phase, said := shared.WaitOperationEnd(t, restore, nil), text(t, restore)
	if phase != operationv1.PhaseFailed || !strings.Contains(said, "the bucket cannot be read") ||
		!strings.Contains(said, "Nothing was stopped") {
		t.Fatalf("it has ended: %s", said)
	}
	_, err := shared.StartObjectStore(ctx)
	suite.Must(t, err)
	suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
}

// restoreWithWrongToken restores a snapshot while the Secret of the cluster has another token than that of the snapshot's time.
func restoreWithWrongToken(t *testing.T, key client.ObjectKey, snapshot string) {
	ctx := t.Context()
	state := &corev1.Secret{}
	suite.Must(t, shared.Hub.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: rkev1.ClusterStateSecretName(key.Name)}, state))
	setToken := func(token []byte) {
		base := state.DeepCopy()
		state.Data["serverToken"] = token
		suite.Must(t, shared.Hub.Patch(ctx, state, client.MergeFrom(base)))
	}
	token := state.Data["serverToken"]
	setToken([]byte("not-the-token-of-the-snapshot"))
	restore := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-wrong-token"}}
	restore.Spec.Spec, restore.Spec.Args.Name = suite.OperationSpec(key), snapshot
	suite.Must(t, shared.Hub.Create(ctx, restore))
	phase, said := shared.WaitOperationEnd(t, restore, nil), text(t, restore)
	if phase != operationv1.PhaseFailed || !strings.Contains(said, "was saved with a server token that Secret") {
		t.Errorf("it has ended: %s", said)
	}
	setToken(token)
}
