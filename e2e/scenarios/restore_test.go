//go:build e2e

package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// writeData sets the value of a ConfigMap of the cluster.
func writeData(t *testing.T, key client.ObjectKey, name, value string) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "ConfigMap "+name+" is written", 2*time.Minute, func(ctx context.Context) (bool, string) {
		data := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
			Data: map[string]string{"value": value}}
		c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
		if err == nil {
			err = c.Create(ctx, data)
		}
		if apierrors.IsAlreadyExists(err) {
			err = c.Update(ctx, data)
		}
		return err == nil, fmt.Sprint(err)
	}))
}

// readData is that value, or why there is none.
func readData(t *testing.T, key client.ObjectKey, name string) string {
	t.Helper()
	value := ""
	suite.Must(t, shared.WaitFor(t.Context(), "the cluster tells of ConfigMap "+name, 2*time.Minute, func(ctx context.Context) (bool, string) {
		data := &corev1.ConfigMap{}
		c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
		if err == nil {
			err = c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, data)
		}
		if value = data.Data["value"]; apierrors.IsNotFound(err) {
			value, err = "not found", nil
		}
		return err == nil, fmt.Sprint(err)
	}))
	return value
}

// restoreSnapshot changes what was written before a snapshot, and restores it by the Cluster.
func restoreSnapshot(t *testing.T, key client.ObjectKey, snapshot string, generation int) {
	ctx := t.Context()
	writeData(t, key, "kept", "after the snapshot")
	writeData(t, key, "new", "after the snapshot")
	changeCluster(t, key, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: snapshot, Generation: generation, RestoreRKEConfig: "all"}
	})
	began, last := time.Now(), ""
	suite.Must(t, shared.WaitFor(ctx, "the snapshot is restored", 10*time.Minute, func(ctx context.Context) (bool, string) {
		plane := &rkev1.RKEControlPlane{}
		if err := shared.Hub.Get(ctx, key, plane); err != nil {
			return false, err.Error()
		}
		phase := plane.Status.ETCDSnapshotRestorePhase
		if asked := plane.Status.ETCDSnapshotRestore; asked == nil || asked.Generation != generation {
			phase = ""
		}
		if phase != last {
			t.Logf("%s after %s", phase, time.Since(began).Round(time.Second))
			last = phase
		}
		if phase == "Failed" {
			t.Fatalf("it has failed: %s", shared.RunKubectl(t, shared.HubKubeconfig(), "-n", key.Namespace, "get", "etcdsnapshotrestores", "-o",
				"yaml"))
		}
		return phase == "Finished", phase
	}))
	suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	if kept, lost := readData(t, key, "kept"), readData(t, key, "new"); kept != "before the snapshot" || lost != "not found" {
		t.Errorf("what was written before the snapshot is %q, what was written after it %q", kept, lost)
	}
	_, err := shared.RunHello(ctx, shared.Hub, key, 5*time.Minute)
	suite.Must(t, err)
}
