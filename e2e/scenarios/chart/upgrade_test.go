//go:build e2e && full

package chart

import (
	"context"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestChartUpgrade changes a value of the release and takes that back, and deletes the Pod of the leader: machines notice nothing of it,
// and the gateway answers.
func TestChartUpgrade(t *testing.T) {
	cluster.use(t)
	suite.Step(t, "the hub has the right to the kinds that an infrastructure provider grants Cluster API", func(t *testing.T) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: exampleRole}}
		role.Labels = map[string]string{"cluster.x-k8s.io/aggregate-to-manager": "true"}
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{exampleGroup}, Resources: []string{"*"}, Verbs: []string{"get", "create"}}}
		suite.Must(t, cluster.api.Create(t.Context(), role))
		cluster.waitGranted(t)
		cluster.checkRulesOwner(t)
	})
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
			cluster.waitGranted(t)
			cluster.checkRulesOwner(t)
		})
	}
	suite.Must(t, cluster.api.Delete(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: exampleRole}}))
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

// exampleGroup is the API group of a provider's kinds, exampleRole what it grants Cluster API.
const (
	exampleGroup = "infrastructure.example.com"
	exampleRole  = "example-provider-for-cluster-api"
)

// checkRulesOwner checks that the rules of the aggregated ClusterRole are none of the chart's: Helm would take them from the controller
// that aggregates them, or fail.
func (m *management) checkRulesOwner(t *testing.T) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	suite.Must(t, m.api.Get(t.Context(), client.ObjectKey{Name: "drover-hub-providers"}, role))
	for _, entry := range role.ManagedFields {
		if entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:rules"`) &&
			entry.Manager != "clusterrole-aggregation-controller" {
			t.Errorf("%s owns the rules of %s", entry.Manager, role.Name)
		}
	}
}

// waitGranted waits until the hub may create objects of the provider's kinds.
func (m *management) waitGranted(t *testing.T) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "the right to a provider's kinds", time.Minute, func(ctx context.Context) (bool, string) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":drover-hub",
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: "default", Verb: "create", Group: exampleGroup, Resource: "examplemachinetemplates",
			},
		}}
		if err := m.api.Create(ctx, review); err != nil {
			return false, err.Error()
		}
		return review.Status.Allowed, review.Status.Reason
	}))
}
