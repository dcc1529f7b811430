//go:build e2e && full

package chart

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestChartUpgrade changes a value of the release and takes that back, and deletes the Pod of the leader: machines notice nothing of it,
// and the gateway answers.
func TestChartUpgrade(t *testing.T) {
	cluster.use(t)
	for _, change := range []struct {
		name string
		args []string
	}{
		{"helm upgrade", []string{"upgrade", release, cluster.chart, "--reuse-values", "--set", "logLevel=debug"}},
		{"helm rollback", []string{"rollback", release}},
	} {
		suite.Step(t, change.name+" replaces both replicas, and no plan is applied", func(t *testing.T) {
			attempts, started := cluster.waitQuiet(t), cluster.serverStarted(t)
			report := cluster.watchGateway(t)
			cluster.helm(t, append(change.args, "--wait", "--timeout", "5m")...)
			cluster.waitReplicas(t)
			report()
			cluster.checkReachable(t)
			cluster.checkUnchanged(t, attempts, started)
		})
	}
	suite.Step(t, "when the leader's Pod is deleted, another replica goes on with the work", func(t *testing.T) {
		report := cluster.watchGateway(t)
		old, err := cluster.leader(t.Context())
		suite.Must(t, err)
		began := time.Now()
		suite.Must(t, cluster.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: old}}))
		suite.Must(t, shared.WaitFor(t.Context(), "another replica leads", time.Minute, func(ctx context.Context) (bool, string) {
			now, err := cluster.leader(ctx)
			return err == nil && now != "" && now != old, "the leader is " + now
		}))
		t.Logf("another replica led after %.1f s", time.Since(began).Seconds())
		cluster.addManifest(t)
		report()
		cluster.waitReplicas(t)
	})
}

// addManifest changes the configuration of the Cluster, and waits until the cluster has what was added.
func (m *management) addManifest(t *testing.T) {
	t.Helper()
	c := &provisioningv1.Cluster{}
	suite.Must(t, m.api.Get(t.Context(), m.downstream, c))
	patch := client.MergeFrom(c.DeepCopy())
	c.Spec.RKEConfig.AdditionalManifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: added, namespace: default}\n"
	suite.Must(t, m.api.Patch(t.Context(), c, patch))
	suite.Must(t, shared.WaitFor(t.Context(), "the manifest is applied", 3*time.Minute, func(ctx context.Context) (bool, string) {
		api, _, err := shared.ClusterClient(ctx, m.api, m.downstream)
		if err != nil {
			return false, err.Error()
		}
		err = api.Get(ctx, client.ObjectKey{Namespace: "default", Name: "added"}, &corev1.ConfigMap{})
		return err == nil, "the ConfigMap is not there"
	}))
}
