//go:build e2e

package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestExplained applies Clusters that cannot work: each is refused, or has a condition that names the field.
func TestExplained(t *testing.T) {
	ctx := t.Context()
	const namespace = "fleet-default"
	shared.MakeNamespace(t, namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "not-for-you"}, StringData: map[string]string{"a": "b"}}
	suite.Must(t, shared.Hub.Create(ctx, secret))
	t.Cleanup(func() { _ = shared.Hub.Delete(context.Background(), secret) })

	for _, test := range []struct {
		name, spec string
		says       []string
	}{
		{"version without a distribution", `{kubernetesVersion: v1.36.3, rkeConfig: {}}`, []string{"spec.kubernetesVersion", "v1.36.3+k3s1"}},
		{"no version", `{rkeConfig: {}}`, []string{"spec.kubernetesVersion"}},
		{"pool without a reference", `{kubernetesVersion: v1.36.3+k3s1, rkeConfig: {machinePools: [{name: a, workerRole: true}]}}`,
			[]string{"machinePools", "machineConfigRef"}},
		{"pool without a role", `{kubernetesVersion: v1.36.3+k3s1, rkeConfig: {machinePools: [{name: a, machineConfigRef: {kind: X, name: y}}]}}`,
			[]string{"machinePools", "etcdRole"}},
		{"selector file without authorization", `{kubernetesVersion: v1.36.3+k3s1, rkeConfig: {machineSelectorFiles: [{fileSources:
			[{secret: {name: not-for-you, items: [{key: a, path: /etc/a}]}}]}]}}`,
			[]string{"spec.rkeConfig.machineSelectorFiles[0].fileSources[0].secret.name", "not authorized"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "explained"}}
			suite.Must(t, yaml.UnmarshalStrict([]byte(test.spec), &cluster.Spec))
			err := shared.Hub.Create(ctx, cluster)
			said := ""
			if err != nil {
				said = err.Error()
			} else {
				defer shared.DeleteCluster(t, client.ObjectKeyFromObject(cluster))
				suite.Must(t, shared.WaitFor(ctx, "the cluster has a condition about it", 2*time.Minute, func(ctx context.Context) (bool, string) {
					if err := shared.Hub.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
						return false, err.Error()
					}
					c := meta.FindStatusCondition(cluster.Status.Conditions, provisioningv1.ReadyCondition)
					if c == nil {
						return false, "no condition Ready"
					}
					said = c.Message
					return contains(said, test.says), said
				}))
			}
			if !contains(said, test.says) {
				t.Errorf("%q does not name %q", said, test.says)
			}
			t.Log(said)
		})
	}
}

func contains(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// tokenSecret names the Secret with the registration token of a cluster.
func tokenSecret(t *testing.T, key client.ObjectKey) client.ObjectKey {
	t.Helper()
	cluster := &provisioningv1.Cluster{}
	suite.Must(t, shared.Hub.Get(t.Context(), key, cluster))
	return client.ObjectKey{Namespace: cluster.Status.ClusterName, Name: "crt-token-default-token"}
}
