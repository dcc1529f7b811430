//go:build e2e && full

package chart

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
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
			report := cluster.watchAccess(t)
			cluster.helm(t, append(change.args, "--wait", "--timeout", "5m")...)
			cluster.waitReplicas(t)
			report()
			cluster.checkReachable(t)
			cluster.checkUnchanged(t, attempts, started)
		})
	}
	suite.Step(t, "when the leader's Pod is deleted, another replica goes on with the work", func(t *testing.T) {
		report := cluster.watchAccess(t)
		old, err := cluster.leader(t.Context())
		suite.Must(t, err)
		began := time.Now()
		suite.Must(t, cluster.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: old}}))
		suite.Must(t, shared.WaitFor(t.Context(), "another replica leads", time.Minute, func(ctx context.Context) (bool, string) {
			now, err := cluster.leader(ctx)
			return err == nil && now != "" && now != old, "the leader is " + now
		}))
		t.Logf("another replica led after %.1f s", time.Since(began).Seconds())
		cluster.addManifest(t, "led")
		report()
		cluster.waitReplicas(t)
	})
}
