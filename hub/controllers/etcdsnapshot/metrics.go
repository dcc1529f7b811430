package etcdsnapshot

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// collectTimeout bounds a scrape.
const collectTimeout = 5 * time.Second

var lastSuccess = prometheus.NewDesc("drover_cluster_etcd_snapshot_last_success_timestamp_seconds",
	"When the newest snapshot of etcd that a cluster lists was saved, in seconds since 1970, by namespace and name of the Cluster and by "+
		"storage: local or s3. 0 if none was saved without an error.",
	[]string{"namespace", "cluster", "storage"}, nil)

// collector reads at each scrape what there is, so that a cluster that was deleted leaves nothing behind. Only the replica that reconciles
// has it.
type collector struct {
	reader  client.Reader
	elected <-chan struct{}
}

// stored is where snapshots of a cluster are.
type stored struct{ namespace, cluster, storage string }

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) { to <- lastSuccess }

// Collect implements prometheus.Collector. ETCDSnapshots that users have created say nothing of what the cluster saves, and those that are
// missing cannot be restored.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var list rkev1.ETCDSnapshotList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		to <- prometheus.NewInvalidMetric(lastSuccess, err)
		return
	}
	newest := map[stored]int64{}
	for i := range list.Items {
		s := &list.Items[i]
		if s.Annotations[rkev1.SnapshotNameAnnotation] == "" || s.Status.Missing || !s.DeletionTimestamp.IsZero() {
			continue
		}
		in := stored{s.Namespace, s.Spec.ClusterName, rkev1.SnapshotStorageLocal}
		if s.SnapshotFile.S3 != nil {
			in.storage = rkev1.SnapshotStorageS3
		}
		at := int64(0)
		if s.SnapshotFile.Status == "successful" && s.SnapshotFile.CreatedAt != nil {
			at = s.SnapshotFile.CreatedAt.Unix()
		}
		newest[in] = max(newest[in], at)
	}
	for in, at := range newest {
		to <- prometheus.MustNewConstMetric(lastSuccess, prometheus.GaugeValue, float64(at), in.namespace, in.cluster, in.storage)
	}
}
