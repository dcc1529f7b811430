package figures

import (
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The metrics of the API server and of the Go runtime that are read.
const (
	etcdRequests = "etcd_requests_total"
	liveHeap     = "go_gc_heap_live_bytes"
)

// etcdWrites are the operations that change something.
var etcdWrites = map[string]bool{"create": true, "update": true, "delete": true}

// ReadMetrics adds to a sample what the metrics of an API server say, in Prometheus' text format.
func (s *Sample) ReadMetrics(r io.Reader) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return fmt.Errorf("decoding metrics: %w", err)
	}
	if families[etcdRequests] == nil {
		return fmt.Errorf("decoding metrics: there is no %s", etcdRequests)
	}
	s.Writes = map[string]float64{}
	for _, m := range families[etcdRequests].GetMetric() {
		if labels := labelsOf(m.GetLabel()); etcdWrites[labels["operation"]] {
			s.Writes[strings.TrimSuffix(labels["resource"]+"."+labels["group"], ".")] += m.GetCounter().GetValue()
		}
	}
	for _, m := range families[liveHeap].GetMetric() {
		s.Heap = int64(m.GetGauge().GetValue())
	}
	return nil
}

func labelsOf[L interface {
	GetName() string
	GetValue() string
}](pairs []L) map[string]string {
	labels := map[string]string{}
	for _, pair := range pairs {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}
