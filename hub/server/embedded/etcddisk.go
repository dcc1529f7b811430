package embedded

import "github.com/prometheus/client_golang/prometheus"

// diskMetrics are those of etcd's metrics that say how slow the disk is: histograms without labels.
var diskMetrics = map[string]*prometheus.Desc{
	"etcd_disk_wal_fsync_duration_seconds": prometheus.NewDesc("etcd_disk_wal_fsync_duration_seconds",
		"How long the disk took to store an entry of the write-ahead log of the embedded etcd.", nil, nil),
	"etcd_disk_backend_commit_duration_seconds": prometheus.NewDesc("etcd_disk_backend_commit_duration_seconds",
		"How long the embedded etcd took to commit to its database.", nil, nil),
}

// diskCollector passes these on from the registry that etcd has them in, which the hub does not serve.
type diskCollector struct{ etcd prometheus.Gatherer }

// Describe implements prometheus.Collector.
func (c diskCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range diskMetrics {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (c diskCollector) Collect(to chan<- prometheus.Metric) {
	families, _ := c.etcd.Gather() // an error is about other metrics, and these are among the families nevertheless
	for _, family := range families {
		desc := diskMetrics[family.GetName()]
		if desc == nil {
			continue
		}
		for _, metric := range family.GetMetric() {
			histogram, buckets := metric.GetHistogram(), map[float64]uint64{}
			for _, bucket := range histogram.GetBucket() {
				buckets[bucket.GetUpperBound()] = bucket.GetCumulativeCount()
			}
			to <- prometheus.MustNewConstHistogram(desc, histogram.GetSampleCount(), histogram.GetSampleSum(), buckets)
		}
	}
}
