// Package embedded runs etcd and a Kubernetes API server inside the hub's own process, so that a hub works on one machine without any
// cluster to live in. It owns everything below the data directory: the etcd data, the certificate authorities and certificates, the
// service account key and admin.kubeconfig. Beside the API it runs only the controllers without which that API would not behave as one
// expects (namespaces, garbage collection, service accounts and their tokens, aggregated roles).
//
// It must not know anything about Cluster API or about Drover's own kinds: those are installed and served by its callers, through the
// same API that anybody else uses.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// DefaultPort is the loopback port of the API server where none is asked for.
const DefaultPort = 6443

// Options say where the server keeps its data and where it listens. Only DataDir is needed.
type Options struct {
	// Jobs serves the kinds of batch/v1, too. Nothing runs them; tests do.
	Jobs bool
	// CollectAfter delays the garbage collector until it is closed, by a minute at most: with many objects it takes the processor from those
	// who wait for the server's first clients. nil does not delay it.
	CollectAfter <-chan struct{}
	// DataDir is created with mode 0700 where it does not exist.
	DataDir string
	// Port is the port on 127.0.0.1 that the API server listens on. 0 takes any free port.
	Port int
	// PortFlag is the name of the caller's flag behind Port, so that an error can name what to change.
	PortFlag string
	// Logger receives what etcd and this package have to say. What the Kubernetes libraries log goes through klog, which belongs to the
	// process: see RouteKubernetesLogs.
	Logger *slog.Logger
	// EncryptionKeyDir holds the file EncryptionConfig; empty takes the directory "encryption" in DataDir. It must not be in etcd's directory.
	EncryptionKeyDir string
	// Audit is the audit log of the API server.
	Audit AuditOptions
	// Registerer gets metrics of the size of the database and of the speed of its disk; nil for none.
	Registerer prometheus.Registerer
	// TrimWatched makes custom resources smaller that clients in this process watch, in place; nil leaves them. It is for what their caches
	// would drop: all of them get these objects, but for users that they impersonate.
	TrimWatched func(object any) (any, error)
	// UnsafeNoFsync lets etcd skip syncing its files to disk. A test that throws its data away anyway is faster with it; data that
	// matters must never see it.
	UnsafeNoFsync bool

	// bookmarks is how often a watch that gets no events is told how far it is; 0 takes 20 s.
	bookmarks time.Duration
	// quota is how large the database of etcd may be, in bytes; 0 takes 8 GiB.
	quota int64
}

// bookmarkInterval is how often a watch is told how far it is.
func (o Options) bookmarkInterval() time.Duration { return cmp.Or(o.bookmarks, 20*time.Second) }

// etcdDir is where etcd keeps its data.
func (o Options) etcdDir() string { return filepath.Join(o.DataDir, "etcd") }

func (o Options) encryptionKeyDir() string {
	if o.EncryptionKeyDir != "" {
		return o.EncryptionKeyDir
	}
	return filepath.Join(o.DataDir, "encryption")
}

// Server is a running etcd with a running API server in front.
type Server struct {
	dataDir string
	config  *rest.Config
	// restored is when the data were restored from a snapshot; zero if they were not.
	restored time.Time

	stop  func()        // asks everything to stop; may be called more than once
	quiet func()        // makes what the Kubernetes libraries report debugging output until ended is closed; may be called more than once
	ended chan struct{} // closed when everything has stopped
	err   error         // why, where nobody asked for it; valid once ended is closed
}

// Start brings the server up and returns when /readyz is ok and the default namespaces exist. Cancelling ctx has the same effect as
// Stop; a caller who wants to choose the order in which things end passes a context of its own and calls Stop. An API server that is
// starting becomes ready before it is stopped: its hooks end the whole process when they are interrupted.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	dataDir, err := prepareDataDir(opts.DataDir)
	if err != nil {
		return nil, err
	}
	opts.DataDir = dataDir
	if err := checkOwner(opts.DataDir, opts.etcdDir(), os.Geteuid()); err != nil {
		return nil, err
	}
	settle := unsettle()
	defer settle()

	var undo cleanups
	defer undo.run()

	lock, err := lockDataDir(opts.DataDir)
	if err != nil {
		return nil, err
	}
	undo.add(lock.release)

	// The port is taken first: a taken port is the most likely thing to go wrong, and nothing has been started yet.
	listener, err := listen(opts)
	if err != nil {
		return nil, err
	}
	undo.add(func() { _ = listener.Close() })

	tlsDir := filepath.Join(opts.DataDir, "tls")
	if err := awaitClock(ctx, tlsDir, opts.Logger); err != nil {
		return nil, err
	}
	certs, err := ensureCertificates(tlsDir, opts.etcdDir(), time.Now())
	if err != nil {
		return nil, fmt.Errorf("preparing certificates: %w", err)
	}
	adminConfig := certs.adminConfig(listener.Addr().String())
	kubeconfig := filepath.Join(opts.DataDir, AdminKubeconfig)
	if err := writeKubeconfig(kubeconfig, adminConfig); err != nil {
		return nil, fmt.Errorf("writing %s: %w", AdminKubeconfig, err)
	}

	if err := makeEtcdDir(opts.etcdDir()); err != nil {
		return nil, err
	}
	encryption, err := ensureEncryption(opts.encryptionKeyDir(), opts.etcdDir())
	if err != nil {
		return nil, err
	}
	restored, err := readRestored(opts.etcdDir())
	if err != nil {
		return nil, err
	}
	etcd, err := startEtcd(ctx, opts)
	if err != nil {
		return nil, err
	}
	undo.add(etcd.close)
	if err := etcd.freeSpace(ctx, opts.etcdQuota(), opts.Logger.With("logger", "etcd")); err != nil {
		return nil, err
	}

	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	undo.add(cancel)
	api, err := startAPIServer(runCtx, opts, listener, certs, encryption, etcd)
	if err != nil {
		return nil, err
	}
	undo.add(api.wait)
	undo.add(cancel)
	if err := api.waitReady(context.WithoutCancel(ctx), adminConfig); err != nil {
		opts.Logger.Error("The embedded API server does not start", "error", err)
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}
	config := api.inProcessConfig(runCtx, adminConfig)
	live, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	api.tokens.live.Store(live)
	if err := certs.forgetAuthorities(ctx, live); err != nil {
		opts.Logger.Error("Certificates of a replaced authority may still be accepted by the gateway", "error", err)
	}
	if err := encryption.rewriteSecrets(ctx, config, opts.Logger); err != nil {
		return nil, err
	}

	etcd.settled()

	controllersCtx, stopControllers := context.WithCancel(runCtx)
	undo.add(stopControllers)
	controllersDone, err := startControllers(controllersCtx, config, certs, opts.CollectAfter)
	if err != nil {
		return nil, err
	}
	go certs.keepFresh(runCtx, opts.Logger, kubeconfig, adminConfig)
	go etcd.watchSpace(runCtx, opts.etcdQuota(), opts.Logger.With("logger", "etcd"))
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(spaceCollector{etcd, opts.etcdQuota()}, diskCollector{prometheus.DefaultGatherer})
	}

	undo.forget()
	s := &Server{dataDir: opts.DataDir, config: config, restored: restored, ended: make(chan struct{})}
	stopRequested := make(chan struct{})
	s.stop = sync.OnceFunc(func() { close(stopRequested) })
	stopping := sync.OnceValue(unsettle)
	s.quiet = func() { stopping() }
	go func() {
		s.err = waitForEnd(ctx, stopRequested, api.failed, etcd.failed)
		stopped := stopping()
		defer stopped()
		stopControllers()
		<-controllersDone
		cancel()
		api.wait()
		etcd.close()
		lock.release()
		close(s.ended)
	}()
	return s, nil
}

// waitForEnd waits for a reason to end, and returns it where it is a failure.
func waitForEnd(ctx context.Context, stopRequested <-chan struct{}, apiFailed, etcdFailed <-chan error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-stopRequested:
		return nil
	case err := <-apiFailed:
		return fmt.Errorf("the embedded API server ended: %w", err)
	case err := <-etcdFailed:
		return fmt.Errorf("the embedded etcd ended: %w", err)
	}
}

// RestConfig returns a configuration with all rights (group system:masters), for clients in this process. Each call returns a copy.
func (s *Server) RestConfig() *rest.Config { return rest.CopyConfig(s.config) }

// DataDir is the absolute path of the data directory.
func (s *Server) DataDir() string { return s.dataDir }

// Restored is when the data were restored from a snapshot; zero if they were not.
func (s *Server) Restored() time.Time { return s.restored }

// Kubeconfig is the path of the admin kubeconfig file.
func (s *Server) Kubeconfig() string { return filepath.Join(s.dataDir, AdminKubeconfig) }

// Done is closed when the server has ended, asked to or not; Stop tells which.
func (s *Server) Done() <-chan struct{} { return s.ended }

// ExpectStop tells the server that its clients are leaving and that Stop will follow. What the API server has to say about webhooks and
// watches that go away is for debugging from then on.
func (s *Server) ExpectStop() { s.quiet() }

// Stop ends the controllers, the API server and etcd, in this order, and returns when the data directory is free for another server. It
// returns an error only if the server had already ended.
func (s *Server) Stop() error {
	s.stop()
	<-s.ended
	return s.err
}

func listen(opts Options) (net.Listener, error) {
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(opts.Port))
	listener, err := net.Listen("tcp", address)
	if err == nil {
		return listener, nil
	}
	hint := ""
	if opts.PortFlag != "" {
		hint = "; choose another port with " + opts.PortFlag
	}
	if opErr, ok := errors.AsType[*net.OpError](err); ok {
		err = opErr.Err
	}
	return nil, fmt.Errorf("the embedded API server cannot listen on %s: %w%s", address, err, hint)
}

// cleanups undoes, in reverse order, what a Start that fails half-way has already done.
type cleanups []func()

func (c *cleanups) add(f func()) { *c = append(*c, f) }
func (c *cleanups) forget()      { *c = nil }
func (c *cleanups) run() {
	for _, cleanup := range slices.Backward(*c) {
		cleanup()
	}
}
