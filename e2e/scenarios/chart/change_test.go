//go:build e2e && full

package chart

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// change changes the downstream Cluster.
func (m *management) change(t *testing.T, change func(*provisioningv1.Cluster)) {
	t.Helper()
	suite.Must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c := &provisioningv1.Cluster{}
		if err := m.api.Get(t.Context(), m.downstream, c); err != nil {
			return err
		}
		change(c)
		return m.api.Update(t.Context(), c)
	}))
}

// addManifest adds a ConfigMap to the configuration of the Cluster, and waits until the cluster has it.
func (m *management) addManifest(t *testing.T, name string) {
	t.Helper()
	m.change(t, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.AdditionalManifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: default}\n"
	})
	suite.Must(t, shared.WaitFor(t.Context(), "the manifest is applied", 3*time.Minute, func(ctx context.Context) (bool, string) {
		api, _, err := shared.ClusterClient(ctx, m.api, m.downstream)
		if err != nil {
			return false, err.Error()
		}
		err = api.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &corev1.ConfigMap{})
		return err == nil, fmt.Sprintf("the ConfigMap is not there: %v", err)
	}))
}

// saveSnapshot asks for a snapshot by its generation in the Cluster, and waits until it is saved.
func (m *management) saveSnapshot(t *testing.T, generation int) {
	t.Helper()
	m.change(t, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.ETCDSnapshotCreate = &rkev1.ETCDSnapshotCreate{Generation: generation}
	})
	key := client.ObjectKey{Namespace: m.downstream.Namespace, Name: fmt.Sprintf("%s-snapshot-%d", m.downstream.Name, generation)}
	suite.Must(t, shared.WaitFor(t.Context(), "the snapshot is saved", 5*time.Minute, func(ctx context.Context) (bool, string) {
		op := &operationv1.ETCDSnapshotSave{}
		if err := m.api.Get(ctx, key, op); err != nil {
			return false, err.Error()
		}
		if op.Status.Phase.Ended() && op.Status.Phase != operationv1.PhaseSucceeded {
			t.Fatalf("it has ended: %+v", op.Status)
		}
		return op.Status.Phase == operationv1.PhaseSucceeded, string(op.Status.Phase)
	}))
}
