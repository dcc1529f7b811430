// Package testenv starts the whole hub for integration tests: the embedded API server with all definitions installed, and on it the same
// controllers, webhooks and gateway that "hub serve" runs. Tests so run against a real API server with real garbage collection and tokens,
// and need nothing downloaded. Product code must not import it.
package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/apiproxy"
	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/server/embedded"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv/loopback"
	"github.com/drover-dev/drover/hub/util/managedfields"
)

const (
	readyTimeout = 2 * time.Minute
	// gcPercent spends memory, of which a test's hub needs little, on a fifth of the time.
	gcPercent = 400
	// NodeDrivers is the directory in Env.Dir of programs of node drivers.
	NodeDrivers = "node-drivers"
	// apiAudit is the name of the API server's audit log.
	apiAudit = "api-audit.log"
)

// Options say in what the hub differs from one that is just started.
type Options struct {
	// ServerURL is what machines are told; the gateway's loopback address where it is empty.
	ServerURL string
	// ReleaseData is a file with data about releases; empty for none.
	ReleaseData string
	// Providers are those that the hub runs; empty for all. RunProviders runs the others, in processes of their own.
	Providers provider.Set
	// NodeDriverImage lets node drivers run in Jobs, which a FakeKubelet runs.
	NodeDriverImage string
	// BeforeHub is called when the API server is ready and the hub has not started, with the administrator's kubeconfig; nil for nothing.
	BeforeHub func(kubeconfig string) error
}

// Env is a running hub.
type Env struct {
	// Dir is a temporary directory; the embedded API server keeps its data in Dir/data, agents for download go into Dir/assets.
	Dir string
	// Log is the file that the hub logs to, in debug level.
	Log    string
	Server *embedded.Server
	Config *rest.Config
	// Client reads and writes past all caches, with all rights.
	Client client.Client
	// Gateway is the address of the gateway's listener, ServerURL and CACerts are what machines know of it.
	Gateway   string
	ServerURL string
	CACerts   []byte
	// Audit is the file of the audit log.
	Audit string
	// Webhooks is the address of the webhooks' listener.
	Webhooks string

	cancel  context.CancelFunc
	done    chan error
	logFile *os.File
}

// Start starts a hub on free loopback ports. There can be one per process, since names of controllers and metrics belong to the process.
func Start(opts Options) (env *Env, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}

	dir, err := os.MkdirTemp("", "drover-test-")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	env = &Env{Dir: dir, Log: filepath.Join(dir, "hub.log"), ServerURL: opts.ServerURL}
	defer func() {
		if err != nil {
			err = errors.Join(err, env.Stop(false))
		}
	}()
	if env.logFile, err = os.Create(env.Log); err != nil {
		return nil, fmt.Errorf("making the log: %w", err)
	}
	logger := slog.New(slog.NewTextHandler(env.logFile, &slog.HandlerOptions{Level: slog.LevelDebug}))
	embedded.RouteKubernetesLogs(logger)
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))

	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	env.Server, err = embedded.Start(context.Background(), embedded.Options{
		DataDir: filepath.Join(dir, "data"), Logger: logger, UnsafeNoFsync: true, Jobs: opts.NodeDriverImage != "",
		TrimWatched: managedfields.Trim,
		Audit:       embedded.AuditOptions{Path: filepath.Join(dir, apiAudit), PolicyFile: policy},
	})
	if err != nil {
		return nil, err
	}
	env.Config = env.Server.RestConfig()
	if opts.BeforeHub != nil {
		if err := opts.BeforeHub(env.Server.Kubeconfig()); err != nil {
			return nil, err
		}
	}
	return env, env.startHub(ctx, opts, logger)
}

func (e *Env) startHub(ctx context.Context, opts Options, logger *slog.Logger) error {
	scheme, err := server.NewScheme()
	if err != nil {
		return err
	}
	if e.Client, err = client.New(e.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	gateway, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the gateway: %w", err)
	}
	webhooks, err := loopback.FreeAddress("127.0.0.1")
	if err != nil {
		return err
	}
	assets := filepath.Join(e.Dir, "assets")
	if err := os.Mkdir(assets, 0o700); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	e.Webhooks = webhooks
	e.Audit = filepath.Join(e.Dir, "audit.log")
	e.Gateway = gateway.Addr().String()
	if e.ServerURL == "" {
		e.ServerURL = "https://" + e.Gateway
	}

	runCtx, cancel := context.WithCancel(context.Background())
	e.cancel, e.done = cancel, make(chan error, 1)
	hubConfig := rest.CopyConfig(e.Config)
	hubConfig.UserAgent = userAgent
	hub, err := server.New(runCtx, hubConfig, server.Options{
		Settings:        settings.Settings{ServerURL: e.ServerURL, SystemNamespace: settings.DefaultSystemNamespace},
		Logger:          logger,
		GatewayListener: gateway,
		GatewayListen:   gateway.Addr().String(),
		AssetsDir:       assets,
		NodeDriverDir:   filepath.Join(e.Dir, NodeDrivers),
		NodeDriverImage: opts.NodeDriverImage,
		WebhookListen:   webhooks,
		WebhookURL:      "https://" + webhooks,
		HealthListen:    "0",
		PprofListen:     "0",
		MetricsListen:   "0",
		Audit:           apiproxy.AuditOptions{Path: e.Audit},
		ReleaseData:     opts.ReleaseData,
		Providers:       opts.Providers,
	})
	if err != nil {
		e.done <- nil
		return err
	}
	e.CACerts = hub.CACerts
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.done <- hub.Start(runCtx)
	}()
	go func() { // a hub that does not start must not let the test wait for its time to run out
		select {
		case <-ended:
			cancel()
		case <-runCtx.Done():
		}
	}()
	readyCtx, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	defer context.AfterFunc(runCtx, stopWaiting)()
	if !hub.WaitReady(readyCtx) {
		return errors.New("the hub did not become ready")
	}
	return nil
}

// Stop ends the hub, then its API server, and removes the directory unless it shall be kept. It returns what went wrong while they ran.
func (e *Env) Stop(keep bool) error {
	var err error
	if e.cancel != nil {
		e.cancel()
		err = e.awaitEnd()
	}
	if e.Server != nil {
		err = errors.Join(err, e.Server.Stop())
	}
	if e.logFile != nil {
		err = errors.Join(err, e.logFile.Close())
	}
	if err == nil && e.cancel != nil {
		err = e.checkRights()
	}
	if keep || err != nil {
		return err
	}
	return os.RemoveAll(e.Dir)
}

// stopsWithin is longer than any hub should take to stop, and shorter than the manager's grace period.
const stopsWithin = 20 * time.Second

// awaitEnd waits for the hub. What one that does not stop waits for is in its log.
func (e *Env) awaitEnd() error {
	select {
	case err := <-e.done:
		return err
	case <-time.After(stopsWithin):
	}
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	_, _ = fmt.Fprintf(e.logFile, "The hub has not stopped within %s. Its goroutines:\n%s", stopsWithin, all.Bytes())
	fmt.Fprintf(os.Stderr, "the hub has not stopped within %s; what may keep it:\n", stopsWithin)
	for goroutine := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(goroutine, ".Reconcile(") || strings.Contains(goroutine, ".Shutdown(") ||
			strings.Contains(goroutine, ".StopAndWait(") {
			fmt.Fprintln(os.Stderr, goroutine+"\n")
		}
	}
	return <-e.done
}
