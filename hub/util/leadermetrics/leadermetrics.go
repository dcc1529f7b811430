// Package leadermetrics collects gauges about objects at each scrape, so that an object that was deleted leaves nothing behind. Only the
// leader has them: every other replica would show the same.
package leadermetrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// timeout bounds a scrape.
const timeout = 5 * time.Second

// Add adds a sample with the values of the labels, in the order of the description.
type Add func(value float64, labels ...string)

// New returns the collector of a gauge. elected is closed once this replica is the leader; read adds the samples.
func New(gauge *prometheus.Desc, elected <-chan struct{}, read func(context.Context, Add) error) prometheus.Collector {
	return &collector{gauge: gauge, elected: elected, read: read}
}

type collector struct {
	gauge   *prometheus.Desc
	elected <-chan struct{}
	read    func(context.Context, Add) error
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) { to <- c.gauge }

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := c.read(ctx, func(value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(c.gauge, prometheus.GaugeValue, value, labels...)
	})
	if err != nil {
		to <- prometheus.NewInvalidMetric(c.gauge, err)
	}
}
