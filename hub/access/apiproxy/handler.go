package apiproxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/apiproxy/target"
	"github.com/drover-dev/drover/hub/util/response"
)

// refusalTimeout is how long a client may take to read an answer of the hub. What a cluster answers has its own bound (forwarder).
const refusalTimeout = time.Minute

// Prefixes are the paths under which a Handler has to be mounted.
var Prefixes = target.Prefixes

// Options say whom a Handler asks and where it sends requests. All fields but Remote, FromPeer, Audit, Limits and Registerer are needed.
type Options struct {
	// Authenticator tells who a user is; Authorizer, what he may do in the management cluster.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	// Clusters reads management Clusters and the Clusters behind them, from a cache.
	Clusters client.Reader
	// Tunnels are the sessions of this replica. Remote leads to those of others; nil where there are none.
	Tunnels Tunnels
	Remote  Remote
	// FromPeer reports whether a request was forwarded by another replica, which has done everything but pass it on.
	FromPeer func(*http.Request) bool
	// Audit is where events go; nil for nowhere.
	Audit      *AuditLog
	Limits     Limits
	Registerer prometheus.Registerer
	Logger     logr.Logger
}

// Handler is the proxy.
type Handler struct {
	opts    Options
	log     logr.Logger
	limits  *limiter
	metrics *metrics
	life    *lifetime

	// users serves requests of users, peers those that another replica has forwarded.
	users, peers http.Handler
}

// New makes a Handler.
func New(opts Options) (*Handler, error) {
	if opts.Authenticator == nil || opts.Authorizer == nil || opts.Clusters == nil || opts.Tunnels == nil {
		return nil, errors.New("making the API proxy: Authenticator, Authorizer, Clusters and Tunnels are needed")
	}
	h := &Handler{opts: opts, log: opts.Logger, limits: newLimiter(opts.Limits), metrics: newMetrics(opts.Registerer), life: newLifetime()}
	if opts.Audit != nil && opts.Registerer != nil {
		opts.Registerer.MustRegister(opts.Audit.dropped)
	}
	forward := h.forwarder()
	h.peers = h.asPeer(forward)

	// From the inside out.
	user := h.impersonate(forward)
	user = impersonation.WithImpersonation(user, opts.Authorizer, codecs)
	user = h.limit(user)
	user = h.authorize(user)
	user = h.audited(user)
	h.users = filters.WithAuditInit(h.authenticate(user))
	return h, nil
}

// ServeHTTP passes a request on to the cluster that its path names.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response.SetTimeout(w, refusalTimeout)
	to, err := target.Of(r.URL)
	if err != nil {
		writeError(w, r, notFound("%v", err))
		return
	}
	c, err := newCall(r, to)
	if err != nil {
		writeError(w, r, badRequest("%v", err))
		return
	}
	ctx, leave, ok := h.life.enter(r.Context(), c.kind == ordinary)
	if !ok {
		writeError(w, r, unavailable("%v", errStopping))
		return
	}
	defer leave()
	seen := &observed{ResponseWriter: w, ctx: ctx}
	begin := time.Now()
	defer func() { h.metrics.observe(c, seen.code, time.Since(begin)) }()

	r = r.WithContext(request.WithReceivedTimestamp(request.WithRequestInfo(withCall(ctx, c), c.info), begin))
	if h.opts.FromPeer != nil && h.opts.FromPeer(r) {
		h.peers.ServeHTTP(seen, r)
	} else {
		dropHubHeaders(r.Header)
		h.users.ServeHTTP(seen, r)
	}
	if c.aborted {
		// The audit log is written; now the client must see that the answer is not whole.
		panic(http.ErrAbortHandler)
	}
}

// Drain refuses further requests with Retry-After, and returns when those have been answered that are neither watches nor logs nor another
// protocol, or when ctx ends. It is for before the tunnels end: what a cluster has carried out would be answered with 502.
func (h *Handler) Drain(ctx context.Context) { h.life.drain(ctx) }

// Close ends all requests, those too that have become another protocol, and returns when that has been written down. It is for after the
// server has stopped, and before the audit log does.
func (h *Handler) Close() { h.life.close() }
