package apiproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"gopkg.in/natefinch/lumberjack.v2"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/hub/identity/userauth"
)

const (
	auditIDHeader = auditinternal.HeaderAuditID
	// maxAuditID is the length up to which a client may choose the id of its events.
	maxAuditID = 64
	// annotationPrefix begins the annotations that the proxy adds to events.
	annotationPrefix = "proxy.drover.dev/"
	// auditBuffer is how many events wait for a slow disk. Further ones are dropped, and counted.
	auditBuffer = 10000
)

var errAuditBufferFull = errors.New("the queue of the audit log is full")

// auditPolicy records every stage of every request, without bodies. Left out is what the hub asks all clusters all the time: whether their
// APIs answer, what they serve, and which Nodes they have. A thousand clusters that are reached through tunnels are asked 40 times a
// second, which would push the events of users out of the log within hours.
var auditPolicy = policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
	Rules: []auditinternal.PolicyRule{
		{Level: auditinternal.LevelNone, Users: []string{userauth.HubUser}, Verbs: []string{"get"},
			NonResourceURLs: []string{"/", "/healthz*", "/livez*", "/readyz*", "/version", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*"}},
		{Level: auditinternal.LevelNone, Users: []string{userauth.HubUser}, Verbs: []string{"get", "list", "watch"},
			Resources: []auditinternal.GroupResources{{Resources: []string{"nodes"}}}},
		{Level: auditinternal.LevelMetadata},
	},
})

// AuditOptions say where events go and how much of them is kept.
type AuditOptions struct {
	// Path is a file, or "-" for the standard output; empty for no audit log.
	Path string
	// MaxAge is in days, MaxSize in megabytes; MaxBackups is how many files are kept beside the present one. 0 is no limit, but for MaxSize,
	// which is 100 then.
	MaxAge, MaxBackups, MaxSize int
}

// AuditLog takes events of kind audit.k8s.io/v1 Event, one per line.
type AuditLog struct {
	audit.Backend
	out io.Closer
	// queued is how many events wait to be written, dropped counts those that never are.
	queued  atomic.Int64
	dropped prometheus.Counter
	// complaints limits what the hub logs about these: there may be hundreds in a second, and its log may be on the same disk.
	complaints rate.Sometimes
}

// NewAuditLog opens the log, or returns nil where none is asked for.
func NewAuditLog(opts AuditOptions) (*AuditLog, error) {
	if opts.Path == "" {
		return nil, nil
	}
	log := &AuditLog{
		out: io.NopCloser(nil), complaints: rate.Sometimes{Interval: time.Minute},
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "drover_proxy_audit_events_dropped_total",
			Help: "Events that are not in the audit log, since it could not be written, or not fast enough.",
		}),
	}
	var out io.Writer = os.Stdout
	if opts.Path != "-" {
		if err := os.MkdirAll(filepath.Dir(opts.Path), 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of the audit log: %w", err)
		}
		// Before the first event, so that nobody learns only then that it cannot be written.
		file, err := os.OpenFile(opts.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening the audit log: %w", err)
		}
		_ = file.Close()
		rotated := &lumberjack.Logger{Filename: opts.Path, MaxAge: opts.MaxAge, MaxBackups: opts.MaxBackups, MaxSize: opts.MaxSize}
		out, log.out = rotated, rotated
	}
	// The disk is not waited for.
	file := auditFile{Writer: out, log: log}
	writer := auditWriter{Backend: auditlog.NewBackend(file, auditlog.FormatJson, auditv1.SchemeGroupVersion), log: log}
	log.Backend = buffered.NewBackend(writer, buffered.BatchConfig{BufferSize: auditBuffer, MaxBatchSize: 1})
	return log, nil
}

// ProcessEvents implements audit.Sink. The queue behind it would drop events as well, but counts them among the metrics of Kubernetes
// libraries, which the hub does not serve.
func (l *AuditLog) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		if l.queued.Add(1) > auditBuffer {
			l.queued.Add(-1)
			l.drop(errAuditBufferFull)
			continue
		}
		l.Backend.ProcessEvents(event)
	}
	return true
}

// drop counts an event that is not in the log, and says why.
func (l *AuditLog) drop(err error) {
	l.dropped.Inc()
	l.complaints.Do(func() {
		ctrl.Log.WithName("audit").Error(err, "Events are missing in the audit log; drover_proxy_audit_events_dropped_total counts them")
	})
}

// auditFile drops what cannot be written. The backend in front of it would log each event with its error.
type auditFile struct {
	io.Writer
	log *AuditLog
}

// Write implements io.Writer.
func (f auditFile) Write(event []byte) (int, error) {
	if _, err := f.Writer.Write(event); err != nil {
		f.log.drop(err)
	}
	return len(event), nil
}

// auditWriter writes the events that wait in the queue of an AuditLog.
type auditWriter struct {
	audit.Backend
	log *AuditLog
}

// ProcessEvents implements audit.Sink.
func (w auditWriter) ProcessEvents(events ...*auditinternal.Event) bool {
	w.log.queued.Add(-int64(len(events)))
	ok := true
	for _, event := range events {
		if !w.Backend.ProcessEvents(event) {
			w.log.dropped.Inc()
			ok = false
		}
	}
	return ok
}

// Start writes until ctx ends, and then what is left. No log at all has nothing to write.
func (l *AuditLog) Start(ctx context.Context) error {
	if l == nil {
		return nil
	}
	if err := l.Run(ctx.Done()); err != nil {
		return fmt.Errorf("starting the audit log: %w", err)
	}
	<-ctx.Done()
	l.Shutdown()
	return l.out.Close()
}

// audited writes down what is asked for and what is answered, upgrades included.
func (h *Handler) audited(next http.Handler) http.Handler {
	if h.opts.Audit == nil {
		return next
	}
	annotated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r)
		audit.AddAuditAnnotation(r.Context(), annotationPrefix+"cluster", c.cluster)
		if c.kind == upgrade {
			c.describe(r)
		}
		next.ServeHTTP(w, r)
	})
	return filters.WithAudit(annotated, h.opts.Audit, auditPolicy, func(r *http.Request, _ *request.RequestInfo) bool {
		return callOf(r).isLongRunning()
	})
}

// auditedFailure writes down who was not let in at all.
func (h *Handler) auditedFailure(next http.Handler) http.Handler {
	if h.opts.Audit == nil {
		return next
	}
	return filters.WithFailedAuthenticationAudit(next, newUnauthenticatedAudit(h.opts.Audit, h.metrics.omitted), auditPolicy)
}
