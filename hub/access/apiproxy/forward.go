package apiproxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"

	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/access/tunnel"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

// readTimeout is how long a client may take to read the answer to an ordinary request.
const readTimeout = 10 * time.Minute

// forwarder passes requests on to their cluster.
func (h *Handler) forwarder() http.Handler {
	// What has no length, such as watches and logs, is passed on at once without a FlushInterval too.
	proxy := &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      newUpstream(h.opts.Tunnels, h.opts.Remote),
		BufferPool:     buffers{},
		ModifyResponse: h.answered,
		ErrorHandler:   h.failed,
		ErrorLog:       log.New(proxyLog{h}, "", 0),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r)
		until := time.Time{}
		if !c.isLongRunning() {
			until = time.Now().Add(readTimeout)
		}
		// Where that is not supported, in a test's recorder, there is no connection to protect either.
		_ = http.NewResponseController(w).SetWriteDeadline(until)
		h.metrics.inFlight.WithLabelValues(string(c.kind)).Inc()
		defer func() {
			h.metrics.inFlight.WithLabelValues(string(c.kind)).Dec()
			h.logStream(r)
			cause := recover()
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				c.aborted = true
			} else if cause != nil {
				panic(cause)
			}
		}()
		proxy.ServeHTTP(w, r)
	})
}

// rewrite makes what leaves the hub of what came in: without anybody's word on who the user is, and with the client's address and the
// name of the audit event, by which the two audit logs are read side by side.
func rewrite(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			delete(r.Out.Header, name)
		}
	}
	from := r.In.Header["X-Forwarded-For"]
	if !callOf(r.In).fromPeer {
		from = []string{ratelimit.ClientAddress(r.In)}
		if id, found := audit.AuditIDFrom(r.In.Context()); found {
			r.Out.Header.Set(auditIDHeader, string(id))
		}
	}
	r.Out.Header["X-Forwarded-For"] = from
}

// answered looks at the head of an answer before the client gets it.
func (h *Handler) answered(answer *http.Response) error {
	c := callOf(answer.Request)
	if !c.fromPeer {
		answer.Header.Del(auditIDHeader) // the client has it from the hub
	}
	if err := checkAnswer(answer); err != nil {
		return err
	}
	if err := c.rewriteLocation(answer); err != nil {
		return err
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return c.count(answer)
	}
	return nil
}

// answerError is returned for an answer that HTTP does not allow.
type answerError struct{ problem string }

func (e *answerError) Error() string { return e.problem }

// checkAnswer refuses what httputil.ReverseProxy does not handle: it panics on a code below 100, and does not close the connection on which
// a server has switched to another protocol than the one that was requested.
func checkAnswer(answer *http.Response) error {
	requested, got := answer.Request.Header.Get("Upgrade"), answer.Header.Get("Upgrade")
	switch code := answer.StatusCode; {
	case code < http.StatusContinue:
		return &answerError{fmt.Sprintf("its code is %d", code)}
	case code == http.StatusSwitchingProtocols && !strings.EqualFold(requested, got):
		return &answerError{fmt.Sprintf("it switches to the protocol %.50q, and %.50q was requested", got, requested)}
	}
	return nil
}

// failed answers a request that has got no answer from its cluster; a client of a watch, too, must read that in time.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	response.SetTimeout(w, refusalTimeout)
	c := callOf(r)
	if cause := context.Cause(r.Context()); errors.Is(cause, errStopping) {
		writeError(w, r, unavailable("%v", errStopping))
		return
	} else if cause != nil {
		return // the client has gone
	}
	var absent *tunnel.NoSessionError
	var lost *replicas.LostError
	var redirect *redirectError
	var invalid *answerError
	switch {
	case errors.As(err, &invalid):
		writeError(w, r, statusError(http.StatusBadGateway, "", "the answer of cluster %s is invalid: %v", c.cluster, invalid))
	case errors.As(err, &redirect):
		writeError(w, r, statusError(http.StatusBadGateway, "", "cluster %s was asked and %v, which the hub does not pass on: "+
			"a client would send its credential there; ask for that address directly if you trust it", c.cluster, redirect))
	case errors.As(err, &absent), errors.Is(err, replicas.ErrLoop):
		writeError(w, r, unavailable("the agent of cluster %s is not connected to the hub; "+
			"look at the pods of Deployment cattle-cluster-agent in namespace cattle-system of the cluster, "+
			"and at condition %s of its management Cluster", c.cluster, "Connected"))
	case errors.Is(err, errAnswerTimeout):
		writeError(w, r, statusError(http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			"the API of cluster %s did not begin to answer within %s", c.cluster, answerTimeout))
	case errors.As(err, &lost) && lost.Unsent, harmless(r) && c.kind != upgrade:
		writeError(w, r, unavailable("cluster %s could not be reached: %v", c.cluster, err))
	default:
		// What was asked for may have been done, so that nobody is told to ask again.
		writeError(w, r, statusError(http.StatusBadGateway, "",
			"cluster %s was asked and did not answer, so that nobody knows whether it did what was asked: %v", c.cluster, err))
	}
	h.log.V(1).Info("A request got no answer", "Cluster", c.cluster, "verb", c.info.Verb, "err", err.Error())
}

// harmless reports whether a request may be sent twice.
func harmless(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// proxyLog receives what the proxy of the standard library has to say: answers that ended early, which the audit log has too.
type proxyLog struct{ h *Handler }

func (l proxyLog) Write(line []byte) (int, error) {
	l.h.log.V(1).Info("Proxy", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}

// buffers are what answers are copied with.
type buffers struct{}

var pool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (buffers) Get() []byte { return pool.Get().(*[32 << 10]byte)[:] }

func (buffers) Put(b []byte) { pool.Put((*[32 << 10]byte)(b)) }
