package apiproxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics have labels of few values each: neither users nor clusters are among them.
type metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	inFlight *prometheus.GaugeVec
	bytes    *prometheus.CounterVec
	omitted  prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	return &metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "drover_proxy_requests_total",
			Help: "Requests for clusters, by how long they last (ordinary, long, upgrade) and by the code they were answered with; 0 is no answer.",
		}, []string{"kind", "code"}),
		duration: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "drover_proxy_request_duration_seconds", Help: "How long ordinary requests took.",
			Buckets: prometheus.ExponentialBuckets(0.002, 3, 10),
		}),
		inFlight: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "drover_proxy_requests_in_flight", Help: "Requests that clusters are at, by how long they last.",
		}, []string{"kind"}),
		bytes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "drover_proxy_upgrade_bytes_total", Help: "Bytes carried by exec, attach and port-forward, counted when they end.",
		}, []string{"direction"}),
		omitted: factory.NewCounter(prometheus.CounterOpts{
			Name: "drover_proxy_audit_events_omitted_total",
			Help: "Requests without good credentials that are not in the audit log, since there were too many of them.",
		}),
	}
}

func (m *metrics) observe(c *call, code int, took time.Duration) {
	m.requests.WithLabelValues(string(c.kind), strconv.Itoa(code)).Inc()
	if c.kind == ordinary {
		m.duration.Observe(took.Seconds())
	}
}

// observed remembers the code of an answer, and ends a connection that has become another protocol with its request.
type observed struct {
	http.ResponseWriter
	ctx  context.Context
	code int
}

func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *observed) WriteHeader(code int) {
	if o.code == 0 && code >= http.StatusOK {
		o.code = code
	}
	o.ResponseWriter.WriteHeader(code)
}

func (o *observed) Write(p []byte) (int, error) {
	if o.code == 0 {
		o.code = http.StatusOK
	}
	return o.ResponseWriter.Write(p)
}

// Hijack is for connections that become another protocol.
func (o *observed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err == nil {
		o.code = http.StatusSwitchingProtocols
		context.AfterFunc(o.ctx, func() { _ = conn.Close() })
	}
	return conn, buffered, err
}
