package rkecontrolplane

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// collectTimeout bounds a scrape.
const collectTimeout = 5 * time.Second

var certificatesExpiry = prometheus.NewDesc("drover_cluster_certificates_expiry_timestamp_seconds",
	"When the first certificate of a cluster ends, in seconds since 1970, by namespace and name of the Cluster.",
	[]string{"namespace", "cluster"}, nil)

// collector reads at each scrape what there is, so that a cluster that was deleted leaves nothing behind. Only the replica that reconciles
// has it.
type collector struct {
	reader  client.Reader
	elected <-chan struct{}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) { to <- certificatesExpiry }

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var list rkev1.RKEBootstrapList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		to <- prometheus.NewInvalidMetric(certificatesExpiry, err)
		return
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
		to <- prometheus.MustNewConstMetric(certificatesExpiry, prometheus.GaugeValue, float64(end.Unix()), cluster.Namespace, cluster.Name)
	}
}
