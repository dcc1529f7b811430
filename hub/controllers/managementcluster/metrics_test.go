package managementcluster

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// TestCollector: an agent that was connected once has a sample, also if it is not connected any more.
func TestCollector(t *testing.T) {
	var objects []client.Object
	add := func(management, cluster string, status metav1.ConditionStatus, reason string) {
		m := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: management}}
		if cluster != "" {
			m.Labels = ownership.Labels(client.ObjectKey{Namespace: "fleet", Name: cluster})
		}
		if reason != "" {
			conditions.Set(m, metav1.Condition{Type: managementv3.ConnectedCondition, Status: status, Reason: reason})
		}
		objects = append(objects, m)
	}
	add("c-m-a", "connected", metav1.ConditionTrue, reasonConnected)
	add("c-m-b", "lost", metav1.ConditionFalse, reasonDisconnected)
	add("c-m-c", "unstable", metav1.ConditionFalse, reasonUnstable)
	add("c-m-d", "waiting", metav1.ConditionFalse, reasonWaiting)
	add("c-m-e", "new", "", "")
	add("c-m-f", "connected", metav1.ConditionFalse, reasonDisconnected) // has the labels of another one
	add("local", "", metav1.ConditionTrue, reasonConnected)

	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, managementv3.AddToScheme)).WithObjects(objects...).Build()
	elected, registry := make(chan struct{}), prometheus.NewRegistry()
	registry.MustRegister(newCollector(c, elected))
	close(elected)
	want := "# HELP drover_cluster_agent_connected Whether the agent of a cluster is connected, by namespace and name of the Cluster; " +
		`absent until it connects for the first time.
# TYPE drover_cluster_agent_connected gauge
drover_cluster_agent_connected{cluster="connected",namespace="fleet"} 1
drover_cluster_agent_connected{cluster="lost",namespace="fleet"} 0
drover_cluster_agent_connected{cluster="unstable",namespace="fleet"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
