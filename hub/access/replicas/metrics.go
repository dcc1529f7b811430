package replicas

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	lost      *prometheus.CounterVec
	forwarded *prometheus.CounterVec
}

// newMetrics registers the metrics of a Directory, unless registerer is nil.
func newMetrics(registerer prometheus.Registerer, d *Directory) *metrics {
	m := &metrics{
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drover_replica_lost_total", Help: "How often another replica was not heard any more, by why.",
		}, []string{"why"}),
		forwarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "drover_replica_forwarded_requests_total", Help: "Requests that were forwarded to another replica, by how that ended.",
		}, []string{"result"}),
	}
	if registerer != nil {
		registerer.MustRegister(m.lost, m.forwarded, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "drover_replicas", Help: "Replicas that take new sessions, this one included.",
		}, func() float64 { return float64(d.Replicas()) }))
	}
	return m
}
