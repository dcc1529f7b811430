package tunnel

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the observer of the sessions. They have no label whose values agents or clusters choose.
type metrics struct {
	streams, paused    prometheus.Gauge
	connected          prometheus.Counter
	ended, dials       *prometheus.CounterVec
	sent, received     prometheus.Counter
	shed, violations   prometheus.Counter
	queued, roundTrip  prometheus.Histogram
	sessions, buffered prometheus.GaugeFunc
}

const metricsPrefix = "drover_tunnel_"

func newMetrics(m *Manager, registerer prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: metricsPrefix + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help})
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help}, []string{label})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricsPrefix + name, Help: help, Buckets: buckets})
	}
	all := &metrics{
		streams:    gauge("streams", "Open connections through tunnels."),
		paused:     gauge("paused_streams", "Connections whose agent was asked to pause because the hub's side reads slowly."),
		connected:  counter("sessions_connected_total", "Sessions of agents that began."),
		ended:      vector("sessions_ended_total", "Sessions of agents that ended, by reason.", "reason"),
		dials:      vector("dials_total", "Connections requested, by result.", "result"),
		sent:       counter("sent_bytes_total", "Bytes sent to agents, without TLS."),
		received:   counter("received_bytes_total", "Bytes received from agents, without TLS."),
		shed:       counter("shed_streams_total", "Connections that were ended because too many bytes were unread."),
		violations: counter("oddities_total", "Violations of the tunnel protocol by agents."),
		queued:     histogram("queue_seconds", "Time that data waited to be sent.", prometheus.ExponentialBuckets(0.00001, 4, 10)),
		roundTrip:  histogram("round_trip_seconds", "Time that agents took to answer a ping.", prometheus.ExponentialBuckets(0.0005, 2, 14)),
		sessions: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "sessions", Help: "Open sessions of agents."},
			func() float64 { return float64(m.count()) }),
		buffered: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "buffered_bytes",
			Help: "Memory of unread bytes from agents."},
			func() float64 { return float64(m.shared.Used()) }),
	}
	if registerer != nil {
		registerer.MustRegister(all.streams, all.paused, all.connected, all.ended, all.dials, all.sent, all.received, all.shed, all.violations,
			all.queued, all.roundTrip, all.sessions, all.buffered)
	}
	return all
}

// Sent implements session.Observer.
func (m *metrics) Sent(bytes int) { m.sent.Add(float64(bytes)) }

// Received implements session.Observer.
func (m *metrics) Received(bytes int) { m.received.Add(float64(bytes)) }

// Streams implements session.Observer.
func (m *metrics) Streams(change int) { m.streams.Add(float64(change)) }

// Paused implements session.Observer.
func (m *metrics) Paused(change int) { m.paused.Add(float64(change)) }

// Queued implements session.Observer.
func (m *metrics) Queued(d time.Duration) { m.queued.Observe(d.Seconds()) }

// RoundTrip implements session.Observer.
func (m *metrics) RoundTrip(d time.Duration) { m.roundTrip.Observe(d.Seconds()) }

// Copied implements session.Observer: the hub dials for nobody.
func (m *metrics) Copied(int, int) {}

// Shed implements session.Observer.
func (m *metrics) Shed() { m.shed.Inc() }

// Violation implements session.Observer.
func (m *metrics) Violation() { m.violations.Inc() }
