package managementcluster

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/util/leadermetrics"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// newCollector returns the collector of whether the agents of clusters are connected. An agent that has not connected yet has no sample: a
// user may still have to deploy it.
func newCollector(reader client.Reader, elected <-chan struct{}) prometheus.Collector {
	connected := prometheus.NewDesc("drover_cluster_agent_connected",
		"Whether the agent of a cluster is connected, by namespace and name of the Cluster; absent until it connects for the first time.",
		[]string{"namespace", "cluster"}, nil)
	return leadermetrics.New(connected, elected, func(ctx context.Context, add leadermetrics.Add) error {
		var list managementv3.ClusterList
		if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		// The labels of two management Clusters may name the same cluster. Two equal samples would fail the scrape.
		values := map[client.ObjectKey]float64{}
		for i := range list.Items {
			management := &list.Items[i]
			cluster, condition := ownership.Key(management), conditions.Get(management, managementv3.ConnectedCondition)
			switch {
			case cluster.Name == "", condition == nil, condition.Reason == reasonWaiting, !management.DeletionTimestamp.IsZero():
			case condition.Status == metav1.ConditionTrue:
				values[cluster] = 1
			default:
				values[cluster] = max(values[cluster], 0)
			}
		}
		for cluster, value := range values {
			add(value, cluster.Namespace, cluster.Name)
		}
		return nil
	})
}
