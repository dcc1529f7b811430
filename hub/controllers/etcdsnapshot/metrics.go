package etcdsnapshot

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/leadermetrics"
)

// stored is where snapshots of a cluster are.
type stored struct{ namespace, cluster, storage string }

// newCollector returns the collector of when the newest snapshots were saved. ETCDSnapshots that users have created say nothing of what the
// cluster saves, and those that are missing cannot be restored.
func newCollector(reader client.Reader, elected <-chan struct{}) prometheus.Collector {
	lastSuccess := prometheus.NewDesc("drover_cluster_etcd_snapshot_last_success_timestamp_seconds",
		"When the newest snapshot of etcd that a cluster lists was saved, in seconds since 1970, by namespace and name of the Cluster and by "+
			"storage: local or s3. 0 if none was saved without an error.",
		[]string{"namespace", "cluster", "storage"}, nil)
	return leadermetrics.New(lastSuccess, elected, func(ctx context.Context, add leadermetrics.Add) error {
		var list rkev1.ETCDSnapshotList
		if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return err
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
			add(float64(at), in.namespace, in.cluster, in.storage)
		}
		return nil
	})
}
