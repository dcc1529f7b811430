package rkecontrolplane

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/leadermetrics"
)

// newCollector returns the collector of when the first certificate of each cluster ends.
func newCollector(reader client.Reader, elected <-chan struct{}) prometheus.Collector {
	certificatesExpiry := prometheus.NewDesc("drover_cluster_certificates_expiry_timestamp_seconds",
		"When the first certificate of a cluster ends, in seconds since 1970, by namespace and name of the Cluster.",
		[]string{"namespace", "cluster"}, nil)
	return leadermetrics.New(certificatesExpiry, elected, func(ctx context.Context, add leadermetrics.Add) error {
		var list rkev1.RKEBootstrapList
		if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		first := map[client.ObjectKey]time.Time{}
		for i := range list.Items {
			b := &list.Items[i]
			cluster := client.ObjectKey{Namespace: b.Namespace, Name: b.Labels[clusterv1.ClusterNameLabel]}
			end, err := time.Parse(time.RFC3339, b.Annotations[clusterv1.MachineCertificatesExpiryDateAnnotation])
			if err != nil || cluster.Name == "" || !b.DeletionTimestamp.IsZero() {
				continue
			}
			if before, known := first[cluster]; !known || end.Before(before) {
				first[cluster] = end
			}
		}
		for cluster, end := range first {
			add(float64(end.Unix()), cluster.Namespace, cluster.Name)
		}
		return nil
	})
}
