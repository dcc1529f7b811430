package operations

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// collectTimeout bounds the reading of the cache while metrics are collected.
const collectTimeout = 5 * time.Second

// Metrics are those of operations. Their labels have few values each: neither clusters nor machines are among them. A nil Metrics counts
// nothing.
type Metrics struct {
	duration *prometheus.HistogramVec
}

// NewMetrics registers the metrics. Operations that exist are read from a cache when metrics are collected.
func NewMetrics(registerer prometheus.Registerer, from client.Reader) *Metrics {
	m := &Metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "drover_operation_duration_seconds",
		Help:    "Time from the creation of operations to their end, by kind and by the phase they ended in.",
		Buckets: prometheus.ExponentialBuckets(1, 3, 10),
	}, []string{"kind", "phase"})}
	for _, op := range operationv1.Kinds() {
		for _, phase := range phases {
			if phase.Ended() {
				m.duration.WithLabelValues(operationv1.Kind(op), string(phase)) // an alert would not see the first one as an increase otherwise
			}
		}
	}
	registerer.MustRegister(m.duration, &collector{from: from})
	return m
}

func (m *Metrics) ended(op operationv1.Operation, phase operationv1.Phase, took time.Duration) {
	if m != nil {
		m.duration.WithLabelValues(operationv1.Kind(op), string(phase)).Observe(took.Seconds())
	}
}

// collector counts the operations that exist.
type collector struct{ from client.Reader }

var existing = prometheus.NewDesc("drover_operations", "Operations that exist, by kind and phase.", []string{"kind", "phase"}, nil)

var phases = []operationv1.Phase{
	operationv1.PhasePending, operationv1.PhaseInProgress, operationv1.PhaseSucceeded, operationv1.PhaseFailed, operationv1.PhaseCanceled,
}

// Describe is part of prometheus.Collector.
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- existing }

// Collect is part of prometheus.Collector. A kind that cannot be read, since the cache has not started, has no samples.
func (c *collector) Collect(samples chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	for _, op := range operationv1.Kinds() {
		list := operationv1.ListOf(op)
		if err := c.from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			continue
		}
		counts := map[operationv1.Phase]int{}
		for _, item := range Items(list) {
			phase := item.CommonStatus().Phase
			if phase == "" {
				phase = operationv1.PhasePending // the hub has not seen it yet
			}
			counts[phase]++
		}
		for _, phase := range phases {
			samples <- prometheus.MustNewConstMetric(existing, prometheus.GaugeValue, float64(counts[phase]), operationv1.Kind(op), string(phase))
		}
	}
}
