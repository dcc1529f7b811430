package apiproxy

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/drover-dev/drover/hub/identity/userauth"
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

// TestAuditOnFullDisk: events that the disk has no room for are counted, and the hub does not log each of them.
func TestAuditOnFullDisk(t *testing.T) {
	full := filepath.Join(t.TempDir(), "audit.log")
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Fatal(err)
	}
	log, err := NewAuditLog(AuditOptions{Path: full})
	if err != nil {
		t.Fatal(err)
	}
	log.ProcessEvents(&auditinternal.Event{}, &auditinternal.Event{}, &auditinternal.Event{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := log.Start(ctx); err != nil { // it writes what waits, and ends
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(log.dropped); got != 3 {
		t.Errorf("%v events are counted as dropped", got)
	}
	log.complaints.Do(func() { t.Error("the next event would be logged, too") })
}

// TestAuditMetrics: dropped events are among the metrics of the proxy.
func TestAuditMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	newEnv(t, http.NotFoundHandler(), func(o *Options) { o.Registerer = registry })
	if n, err := testutil.GatherAndCount(registry, "drover_proxy_audit_events_dropped_total"); n != 1 || err != nil {
		t.Errorf("got %d metrics, %v", n, err)
	}
}

// TestAuditOfHub: what the hub asks of clusters all the time is not in the log; whatever else it does is, and so are the same requests of a
// user.
func TestAuditOfHub(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	w.allow(userauth.HubUser + " get clusters/awake")
	root, hub := "/k8s/clusters/"+connectedCluster, "is-"+userauth.HubUser
	for _, path := range []string{"/", "/readyz", "/version", "/api/v1", "/apis/apps/v1", "/api/v1/nodes", "/api/v1/nodes/a"} {
		if got := w.send(w.request("GET", root+path, hub)); got.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, got.Status)
		}
	}
	logged := []struct{ method, path, token string }{
		{"GET", "/api/v1/namespaces/a/secrets/s", hub},
		{"GET", "/api/v1/nodes/a/proxy/logs", hub},
		{"GET", "/logs/audit.log", hub},
		{"PATCH", "/api/v1/nodes/a", hub},
		{"GET", "/", "is-jane"},
		{"GET", "/api/v1/nodes", "is-jane"},
	}
	for _, r := range logged {
		w.send(w.request(r.method, root+r.path, r.token))
	}
	complete := map[string]string{}
	for _, e := range w.events("ResponseComplete", len(logged)) {
		complete[e.User.Username+" "+e.RequestURI] = e.Verb
	}
	for _, r := range logged {
		if what := strings.TrimPrefix(r.token, "is-") + " " + root + r.path; complete[what] == "" {
			t.Errorf("%s %s is not in the log", r.method, what)
		}
	}
	if len(complete) != len(logged) {
		t.Errorf("the log has %d requests, want %d: %v", len(complete), len(logged), complete)
	}
}
