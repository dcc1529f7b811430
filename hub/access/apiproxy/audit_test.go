package apiproxy

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// refusedEvents are written nowhere.
type refusedEvents struct{ audit.Backend }

func (refusedEvents) ProcessEvents(...*auditinternal.Event) bool { return false }

// TestAuditDropped: events for which the queue has no room, and those that cannot be written, are counted.
func TestAuditDropped(t *testing.T) {
	log, err := NewAuditLog(AuditOptions{Path: filepath.Join(t.TempDir(), "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	for range auditBuffer + 3 { // nothing is written before the log has started
		log.ProcessEvents(&auditinternal.Event{})
	}
	if got := testutil.ToFloat64(log.dropped); got != 3 || log.queued.Load() != auditBuffer {
		t.Errorf("%v events are counted as dropped, %d wait", got, log.queued.Load())
	}
	auditWriter{Backend: refusedEvents{}, log: log}.ProcessEvents(&auditinternal.Event{}, &auditinternal.Event{})
	if got := testutil.ToFloat64(log.dropped); got != 5 || log.queued.Load() != auditBuffer-2 {
		t.Errorf("%v events are counted as dropped, %d wait", got, log.queued.Load())
	}
}

// TestAuditMetrics: dropped events are among the metrics of the proxy.
func TestAuditMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	newEnv(t, http.NotFoundHandler(), func(o *Options) { o.Registerer = registry })
	if n, err := testutil.GatherAndCount(registry, "drover_proxy_audit_events_dropped_total"); n != 1 || err != nil {
		t.Errorf("got %d metrics, %v", n, err)
	}
}
