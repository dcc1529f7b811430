package gateway

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/gateway/agentsession"
	"github.com/drover-dev/drover/hub/gateway/downloads"
	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/gateway/registration"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/accounttokens"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/handshakes"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
	"github.com/drover-dev/drover/tunnel/session"
)

const (
	// maxHeaderBytes bounds a request's headers; a registration with all its labels is far below.
	maxHeaderBytes = 48 << 10
	// headerTimeout is how long a TLS handshake may take, and then the headers of a request.
	headerTimeout = 15 * time.Second
	// stalledTimeout is how long a connection of HTTP/2 may take nothing of what is written to it. Write deadlines are those of a stream: they
	// end none on a connection that is not read at all.
	stalledTimeout = 2 * time.Minute
	// maxStreams is how many requests of one connection of HTTP/2 are in progress, as of kube-apiserver. Each takes memory before any limit of
	// unauthenticated clients can refuse it. Clients of Kubernetes open another connection for more.
	maxStreams = 100
	// maxReceived is how much of the bodies that a connection of HTTP/2 sends is kept in memory until it is read, in bytes, and how much of
	// one body: by default net/http takes a MiB from anybody. An upload sends no more than that in a round trip.
	maxReceived = 128 << 10
	// maxFrame is the size of the largest frame that a client may send, in bytes, the smallest limit that HTTP/2 knows: a connection keeps a
	// buffer for it for its whole life.
	maxFrame = 16 << 10
	// headerTable is the size of the table of answers' headers, in bytes, from which one that is sent again on a connection of HTTP/2 becomes
	// a number: none, since agents send few requests, and the hub has the table in memory for as long as they are connected.
	headerTable = 1
	// shutdownGrace is how long running requests may take when the hub stops.
	shutdownGrace = 10 * time.Second
)

// Options say what a Server serves. SigningKey, Mounts, Peers, and one of Listen and Listener may be left out.
type Options struct {
	// Settings of the hub.
	Settings settings.Settings
	// Identity is what servingcert.Ensure returned.
	Identity *servingcert.Identity
	// SigningKey is the key that the hub signs plans with, which machines get when they register; nil if it does not sign plans.
	SigningKey ed25519.PublicKey
	// Listen is the address of the listener, "host:port".
	Listen string
	// Listener, if set, is used instead of Listen, and closed by the Server.
	Listener net.Listener
	// Files are the downloads.
	Files *downloads.Files
	// Client reads from the manager's caches and writes with the hub's identity.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Cache is where Client reads from; its informers end the sessions of agents whose credential is deleted.
	Cache cache.Informers
	// RestConfig is for the watches of Secrets, which are separate from the manager's caches.
	RestConfig *rest.Config
	// Logger of the gateway.
	Logger logr.Logger
	// Mounts are served beside the table of routes, by pattern of http.ServeMux. They authenticate, and bound the time of an answer,
	// themselves.
	Mounts map[string]http.Handler
	// Issuer issues and verifies the credentials of agents.
	Issuer *tokens.Issuer
	// Tunnels holds the sessions of agents.
	Tunnels agentsession.Tunnels
	// Settle is what follows from a report of a machine for its plan Secret; nil if nothing does (plandelivery.Options).
	Settle func(secret *corev1.Secret, now time.Time)
	// Peers are the other replicas; nil if there can be none.
	Peers *replicas.Directory
}

// Server is the gateway. It is a manager.Runnable that runs on every replica.
type Server struct {
	opts    Options
	log     logr.Logger
	handler http.Handler
	drain   *drainState
	// listening is true from the time at which connections are accepted.
	listening atomic.Bool

	secrets       *secretcache.Cache
	authenticator *plandelivery.Authenticator
	plans         *plandelivery.Handler
	registrar     *registration.Registrar
	sessions      *agentsession.Agents
	files         *downloads.Files

	// The classes of callers in the table of routes.
	anybody, registrants, importers, agents, credentials, machines *callers
	// machineLimits are for machines that have registered.
	machineLimits machineLimits
	// refusals limits what is logged of refused requests, by machine or by address, and unauthenticated that of all addresses together.
	refusals, unauthenticated *ratelimit.Limiter
}

// New returns a Server; nothing runs before Start.
func New(opts Options) (*Server, error) {
	if _, err := settings.ParseServerURL(opts.Settings.ServerURL); err != nil {
		return nil, fmt.Errorf("creating the gateway: the server URL %w", err)
	}
	switch {
	case opts.Identity == nil, opts.Client == nil, opts.APIReader == nil, opts.Cache == nil, opts.RestConfig == nil, opts.Issuer == nil,
		opts.Tunnels == nil, opts.Files == nil:
		return nil, errors.New("creating the gateway: Files, Identity, Client, APIReader, Cache, RestConfig, Issuer and Tunnels are required")
	}
	clientset, err := kubernetes.NewForConfig(opts.RestConfig)
	if err != nil {
		return nil, fmt.Errorf("creating the gateway's client: %w", err)
	}
	s := &Server{opts: opts, log: opts.Logger, files: opts.Files, drain: newDrainState(), refusals: ratelimit.New(1.0/60, 5),
		unauthenticated: ratelimit.New(1, 60), machineLimits: newMachineLimits()}
	s.secrets = secretcache.New(clientset, s.log)
	verifier := accounttokens.New(func(ctx context.Context) ([]byte, error) {
		return clientset.Discovery().RESTClient().Get().AbsPath(accounttokens.KeysPath).DoRaw(ctx)
	}, s.log)
	s.authenticator = plandelivery.NewAuthenticator(opts.Client, opts.APIReader, s.secrets.Issued, verifier)
	s.plans = &plandelivery.Handler{Options: plandelivery.Options{
		ServerURL: opts.Settings.ServerURL, Secrets: s.secrets, Machines: s.authenticator, Client: opts.Client, Live: opts.APIReader,
		Version: clientset.Discovery().ServerVersion, Logger: s.log, Drain: s.drain, Settle: opts.Settle,
	}}
	s.registrar = registration.New(registration.Options{
		Settings: opts.Settings, SigningKey: opts.SigningKey, Client: opts.Client, Live: opts.APIReader, Informers: opts.Cache,
		Secrets: s.secrets, Logger: s.log,
	})
	s.sessions = &agentsession.Agents{Options: agentsession.Options{
		Issuer: opts.Issuer, Registrar: s.registrar, Machines: s.authenticator, Secrets: s.secrets, Client: opts.Client, Live: opts.APIReader,
		Tunnels: opts.Tunnels, Logger: s.log,
	}}
	s.setupCallers()
	s.handler = s.newHandler()
	return s, nil
}

// SetupIndexes adds the indices of the gateway to a manager's cache. It must run before the cache starts.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return errors.Join(registration.SetupIndexes(ctx, indexer), agentsession.SetupIndexes(ctx, indexer))
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends, then lets running requests finish. It listens when its caches are filled: until then thousands of machines
// that try again would take the processor from what they wait for, with TLS handshakes that end in a refusal.
func (s *Server) Start(ctx context.Context) error {
	if err := s.sessions.WatchRevocations(ctx, s.opts.Cache); err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	s.secrets.Start(ctx)
	s.log.Info("Filling the gateway's caches; it listens when they are filled")
	if !s.secrets.Wait(ctx) {
		return nil
	}
	listener := s.opts.Listener
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", s.opts.Listen); err != nil {
			return fmt.Errorf("starting the gateway: %w", err)
		}
	}
	go s.opts.Identity.Run(ctx, s.log)

	server := s.httpServer()
	server.RegisterOnShutdown(s.drain.stop)
	if s.opts.Peers != nil {
		server.RegisterOnShutdown(s.opts.Peers.StopPublishing)
	}
	served := make(chan error, 1)
	limited := connlimit.Listen(session.Listener(connlimit.ReserveFiles(listener, s.outOfFiles())), connlimit.LimitsFor(connlimit.OpenFiles()))
	go func() { served <- serveTLS(server, limited) }()
	s.listening.Store(true)
	s.log.Info("Gateway listening", "address", listener.Addr().String(), "url", s.opts.Settings.ServerURL)

	select {
	case err := <-served:
		return fmt.Errorf("serving the gateway on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
		s.log.Info("Requests were aborted when the gateway stopped", "after", shutdownGrace.String())
	}
	return nil
}

func serveTLS(server *http.Server, listener net.Listener) error {
	return server.Serve(handshakes.Listen(listener, server.TLSConfig, headerTimeout, server.ErrorLog))
}

// outOfFiles logs, once a minute, that connections are refused since too many files are open.
func (s *Server) outOfFiles() func(limit uint64) {
	logged := ratelimit.New(1.0/60, 1)
	return func(limit uint64) {
		if _, ok := logged.Take(""); ok {
			s.log.Error(nil, "Refusing connections: nearly as many files are open as the limit allows; raise it, such as by LimitNOFILE of the unit",
				"limit", limit)
		}
	}
}

func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:           s.handler,
		TLSConfig:         s.opts.Identity.ServerTLS(),
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       connlimit.ConnContext,
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      answerTimeout, // for what net/http refuses before there is a handler; those have their own
		IdleTimeout:       3 * time.Minute,
		HTTP2: &http.HTTP2Config{
			WriteByteTimeout: stalledTimeout, MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame,
			MaxReceiveBufferPerConnection: maxReceived, MaxReceiveBufferPerStream: maxReceived,
			MaxEncoderHeaderTableSize: headerTable,
		},
		ErrorLog: log.New(errorLog{s.log}, "", 0),
	}
}

// Ready returns an error while the gateway does not listen, while its caches are not filled, and when the replica is about to stop.
func (s *Server) Ready() error {
	if !s.listening.Load() {
		return errors.New("the gateway does not listen yet: it does when its caches are filled")
	}
	return s.health()
}

func (s *Server) health() error {
	switch {
	case s.drain.unready.Load():
		return plandelivery.ErrDraining
	case !s.secrets.Synced():
		return secretcache.ErrNotSynced
	}
	return nil
}

// serveHealth serves GET /healthz to anybody: "ok" if machines can register and get their plans, or 503 while the caches are not filled
// and when the replica is about to stop.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) error {
	if err := s.health(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "ok")
	return nil
}

// serveCACerts serves GET /cacerts to anybody: the certificates that machines must trust, PEM, or 404 if the hub has none of its own.
func (s *Server) serveCACerts(w http.ResponseWriter, _ *http.Request) error {
	if len(s.opts.Settings.CACerts) == 0 {
		return response.Errorf(http.StatusNotFound, "this hub has a certificate that every machine trusts")
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = w.Write(s.opts.Settings.CACerts)
	return nil
}

// errorLog receives the log of net/http: failed handshakes, mostly.
type errorLog struct{ log logr.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.log.V(1).Info("HTTP server", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}
