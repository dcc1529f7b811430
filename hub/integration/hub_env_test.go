package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// hubEnv is the shared hub for tests of its controllers.
type hubEnv struct {
	*testenv.Env
}

// newHubEnv returns the shared hub and a new namespace.
func newHubEnv(t *testing.T) (*hubEnv, string) {
	t.Helper()
	return &hubEnv{env}, env.Namespace(t)
}

func until(t *testing.T, what string, check func() error) {
	t.Helper()
	testenv.Until(t, what, check)
}

func (e *hubEnv) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	e.Create(t, objects...)
}

func (e *hubEnv) get(t *testing.T, namespace, name string, into client.Object) {
	t.Helper()
	e.Get(t, namespace, name, into)
}

func change[T client.Object](t *testing.T, e *hubEnv, object T, set func(T)) {
	t.Helper()
	testenv.Change(t, e.Env, object, set)
}

func condition[T interface {
	client.Object
	conditions.Getter
}](t *testing.T, e *hubEnv, object T, conditionType string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	return testenv.Condition(t, e.Env, object, conditionType, status, reason)
}

func newCluster(namespace, name string) *provisioningv1.Cluster {
	return &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: &provisioningv1.RKEConfig{}},
	}
}
