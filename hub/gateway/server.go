package gateway

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/connlimit"
	"github.com/drover-dev/drover/hub/peers"
	"github.com/drover-dev/drover/hub/ratelimit"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/hub/tokens"
	"github.com/drover-dev/drover/hub/tunnel"
)

const (
	// maxHeaderBytes bounds a request's headers; a registration with all its labels is far below.
	maxHeaderBytes = 48 << 10
	// headerTimeout is how long a TLS handshake may take, and then the headers of a request.
	headerTimeout = 15 * time.Second
	// shutdownGrace is how long requests that are being answered may take when the hub stops.
	shutdownGrace = 10 * time.Second
	// answerTimeout is how long an answer of ordinary size may take to be read by the machine, downloadTimeout one of the size of a binary.
	answerTimeout   = time.Minute
	downloadTimeout = 30 * time.Minute
)

// Options say what a Server serves. All fields but SigningKey, AssetsDir, Listener and Logger are needed.
type Options struct {
	Settings settings.Settings
	// Identity is what EnsureCA returned.
	Identity *Identity
	// SigningKey is the key that the hub signs plans with, which machines get when they register; nil where it signs none.
	SigningKey ed25519.PublicKey
	// Listen is the address of the listener, "host:port". Listener wins over it, and is closed by the Server.
	Listen   string
	Listener net.Listener
	// AssetsDir holds the agents, named system-agent-<arch>.
	AssetsDir string
	// Client reads from the manager's caches and writes with the hub's identity; APIReader reads the API itself.
	Client    client.Client
	APIReader client.Reader
	// Cache is where Client reads from; it tells when something is deleted that lets agents in.
	Cache cache.Informers
	// RestConfig is for the watches of Secrets, which are kept apart from the manager's caches.
	RestConfig *rest.Config
	Logger     logr.Logger
	// Mounts are served beside what the Server has itself, by pattern of http.ServeMux. They bound by themselves how long an answer may take.
	Mounts map[string]http.Handler
	// Issuer makes and checks the credentials of agents, and Tunnels holds their sessions.
	Issuer  *tokens.Issuer
	Tunnels Tunnels
	// Peers are the other replicas; nil where there can be none.
	Peers *peers.Directory
}

// Server is the gateway. It is a manager.Runnable that runs on every replica.
type Server struct {
	opts          Options
	log           logr.Logger
	assets        *assets
	installScript []byte
	handler       http.Handler

	plans    *planStore
	sources  *sources
	machines *machineAuthenticator
	joins    *registrar
	agents   *agents
	gate     *gate

	version func(context.Context) (any, error)
	// connects limits registrations, failures limits credentials that turn out to be wrong; both by client.
	connects, failures *ratelimit.Limiter
	// refusals limits by machine what is logged of its refused requests.
	refusals *ratelimit.Limiter
	drain    drainState
	// stopping is closed when the server begins to stop, so that watches end.
	stopping chan struct{}
}

// New makes a Server; nothing runs before Start.
func New(opts Options) (*Server, error) {
	switch {
	case !strings.HasPrefix(opts.Settings.ServerURL, "https://"):
		return nil, fmt.Errorf("making the gateway: the server URL %q must be an https URL", opts.Settings.ServerURL)
	case opts.Identity == nil, opts.Client == nil, opts.APIReader == nil, opts.Cache == nil, opts.RestConfig == nil, opts.Issuer == nil, opts.Tunnels == nil:
		return nil, errors.New("making the gateway: Identity, Client, APIReader, Cache, RestConfig, Issuer and Tunnels are needed")
	}
	script, err := opts.installScript()
	if err != nil {
		return nil, fmt.Errorf("making the gateway: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(opts.RestConfig)
	if err != nil {
		return nil, fmt.Errorf("making the gateway's client: %w", err)
	}
	s := &Server{
		opts: opts, log: opts.Logger, assets: newAssets(opts.AssetsDir), installScript: script,
		plans:    newPlanStore(),
		connects: ratelimit.New(10, 50),
		failures: ratelimit.New(2, 30),
		refusals: ratelimit.New(1.0/60, 5),
		drain:    drainState{begun: make(chan struct{})},
		stopping: make(chan struct{}),
		version: func(context.Context) (any, error) {
			return clientset.Discovery().ServerVersion()
		},
	}
	s.sources = newSources(clientset, s.plans, s.log)
	s.machines = newMachineAuthenticator(opts.Client, opts.APIReader)
	s.machines.issued = s.sources.issued
	s.joins = newRegistrar(opts, s.sources)
	s.agents = &agents{issuer: opts.Issuer, tokens: s.joins.tokens, client: opts.Client, live: opts.APIReader, now: time.Now}
	s.gate = newGate()
	s.handler = s.routes()
	return s, nil
}

// NeedLeaderElection tells the manager that every replica serves machines.
func (s *Server) NeedLeaderElection() bool { return false }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.serveHealth)
	mux.HandleFunc("GET /cacerts", s.serveCACerts)
	mux.HandleFunc("GET /system-agent-install.sh", s.serveInstallScript)
	mux.HandleFunc("GET /assets/{name}", withTimeout(downloadTimeout, s.serveAsset))
	mux.HandleFunc("GET /v3/connect/agent", s.serveConnect)
	mux.HandleFunc("GET /v3/connect/config-yaml", s.serveConfig)
	mux.HandleFunc("GET /v3/connect/cluster-info", s.serveClusterInfo)
	mux.HandleFunc("POST /v3/connect/credential", s.serveCredential)
	mux.HandleFunc("GET "+importPath+"{file}", s.serveImport)

	mux.HandleFunc("GET /version", s.asMachine(s.serveVersion))
	mux.HandleFunc("GET /api", s.serveDiscovery(apiVersions(s.opts.Settings.ServerURL)))
	mux.HandleFunc("GET /apis", s.serveDiscovery(apiGroups()))
	mux.HandleFunc("GET /api/v1", s.serveDiscovery(coreResources()))
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/secrets", s.asMachine(s.servePlanList))
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/secrets/{name}", s.asMachine(s.servePlanGet))
	mux.HandleFunc("PUT /api/v1/namespaces/{namespace}/secrets/{name}", s.asMachine(s.servePlanUpdate))
	for _, rest := range []string{"/version", "/api", "/api/", "/apis", "/apis/", "/openapi/"} {
		mux.HandleFunc(rest, s.asMachine(s.refuseAPI))
	}
	outer := http.NewServeMux()
	outer.Handle("/", withTimeout(answerTimeout, mux.ServeHTTP))
	outer.HandleFunc("GET /v3/connect", s.serveTunnel)
	outer.HandleFunc("GET /v3/connect/register", s.serveTunnel)
	for pattern, handler := range s.opts.Mounts {
		outer.Handle(pattern, s.drain.count(handler))
	}
	if s.opts.Peers == nil {
		return connlimit.Handler(s.drain.sendAway(outer))
	}
	outer.Handle("GET "+peers.SessionsPath, s.opts.Peers)
	return connlimit.Handler(s.opts.Peers.Handler(trustPeers(s.drain.sendAway(outer))))
}

// trustPeers tells the other replicas from strangers.
func trustPeers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peers.FromPeer(r) {
			connlimit.Trust(r.Context())
		}
		next.ServeHTTP(w, r)
	})
}

// Start serves until ctx ends, then lets requests that are being answered finish.
func (s *Server) Start(ctx context.Context) error {
	listener := s.opts.Listener
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", s.opts.Listen); err != nil {
			return fmt.Errorf("starting the gateway: %w", err)
		}
	}
	if err := s.watchRevocations(ctx, s.opts.Cache); err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	s.sources.start(ctx)
	go s.opts.Identity.run(ctx, s.log)

	server := s.httpServer()
	server.RegisterOnShutdown(func() { close(s.stopping) })
	if s.opts.Peers != nil {
		server.RegisterOnShutdown(s.opts.Peers.StopTelling)
	}
	served := make(chan error, 1)
	limited := connlimit.Listen(tunnel.ReadAhead(listener), connlimit.Defaults)
	go func() { served <- server.Serve(tls.NewListener(limited, server.TLSConfig)) }()
	s.log.Info("Gateway is listening", "address", listener.Addr().String(), "url", s.opts.Settings.ServerURL)

	select {
	case err := <-served:
		return fmt.Errorf("serving the gateway on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
		s.log.Info("Some requests were cut off when the gateway stopped", "after", shutdownGrace.String())
	}
	return nil
}

func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:           s.handler,
		TLSConfig:         s.opts.Identity.config(),
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       connlimit.ConnContext,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       3 * time.Minute,
		ErrorLog:          log.New(errorLog{s.log}, "", 0),
	}
}

// serveHealth is ok when machines can register and get their plans.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.drain.unready.Load():
		s.writePlain(w, r, errDraining)
		return
	case !s.sources.synced():
		s.writePlain(w, r, errStarting)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

func (s *Server) serveCACerts(w http.ResponseWriter, r *http.Request) {
	if len(s.opts.Settings.CACerts) == 0 {
		s.writePlain(w, r, refuse(http.StatusNotFound, "this hub has a certificate that every machine trusts"))
		return
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = w.Write(s.opts.Settings.CACerts)
}

// withTimeout bounds how long a machine may take to read the answer. Handlers of long answers put their own bound in its place.
// How long the request may take to be sent is bounded by connlimit.
func withTimeout(limit time.Duration, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		writeWithin(w, limit)
		next(w, r)
	}
}

// writeWithin sets the time until which what is written must have been read. Where that is not supported, in a test's recorder, there
// is no connection to protect either.
func writeWithin(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
}

// errorLog receives what net/http has to say: failed handshakes, mostly.
type errorLog struct{ log logr.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.log.V(1).Info("HTTP server", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}
