package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/gateway/downloads"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/server/embedded"
	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/gctuner"
	"github.com/drover-dev/drover/hub/util/managedfields"
)

func newServe() *cobra.Command {
	opts := &serveOptions{addresses: net.InterfaceAddrs}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the hub",
		Long: `Run the hub.

Without a kubeconfig and outside a cluster, the hub starts an embedded API server, keeps its data in --data-dir and writes an
administrator's kubeconfig to <data-dir>/` + embedded.AdminKubeconfig + `.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := opts.log.apply(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := opts.complete(); err != nil {
				return err
			}
			return serve(cmd.Context(), opts, logger)
		},
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

// ampleMemory is the memory from which on a busy hub takes more of it rather than the processor.
const ampleMemory = 8 << 30

// collected is when garbage is collected on a machine, or in a container, with so much memory; 0 is unknown. Most of the hub's memory lives
// as long as the hub, so that to collect it often costs little at rest; while the hub starts, or many machines come up, it would take a
// third of the CPU time.
func collected(memory uint64) gctuner.Options {
	opts := gctuner.Options{Percent: 25, BusyLeast: 100, BusyMost: 200, StartMost: 150, BusyHeap: 560 << 20, Busy: 16 << 20}
	if memory >= ampleMemory {
		opts.BusyMost, opts.BusyHeap, opts.LargeHeap = 400, 1<<30, memory/3
	}
	return opts
}

// memory is that of the machine, or less if the cgroup has a limit; 0 if it is unknown.
func memory() uint64 {
	least, err := memlimit.FromSystem()
	if err != nil {
		return 0
	}
	if limit, err := memlimit.FromCgroup(); err == nil {
		least = min(least, limit)
	}
	return least
}

// manyFiles is how many files a hub should be allowed to have open; the unit of the package and containers allow a million.
const manyFiles = 65536

// serve runs until ctx ends or something breaks. The order on the way down is that on the way up, reversed: the API server outlives all
// that uses it.
func serve(ctx context.Context, opts *serveOptions, logger *slog.Logger) (err error) {
	started := time.Now()
	mode := opts.mode()
	ready := make(chan struct{})
	if os.Getenv("GOGC") == "" {
		collection := collected(memory())
		collection.Started = ready
		gctuner.Start(collection)
	}
	logger.Info("Starting hub", "version", Version, "mode", string(mode), "providers", opts.hub.Providers.Names(),
		"serverURL", opts.hub.Settings.ServerURL)
	if limit := connlimit.OpenFiles(); limit < manyFiles {
		logger.Warn("The limit of open files is low: a machine needs one, and a cluster six", "limit", limit, "advised", manyFiles)
	}
	if err := opts.checkListeners(); err != nil {
		return err
	}

	warnOfMissingAgents(opts, logger)
	opts.api.CollectAfter = ready
	config, apiServer, err := connect(ctx, opts, logger)
	if err != nil {
		return err
	}
	if apiServer != nil {
		defer func() { err = errors.Join(err, apiServer.Stop()) }()
		var cancel context.CancelFunc
		ctx, cancel = cancelWhenDone(ctx, apiServer, logger)
		defer cancel()
		defer context.AfterFunc(ctx, apiServer.ExpectStop)()
	}
	config = rest.AddUserAgent(config, "drover-hub/"+Version)
	// Without it every client would log every warning of the API server; this one leaves out those that only Cluster API could act on.
	config.WarningHandler = apiwarnings.DefaultHandler(logr.FromSlogHandler(logger.Handler()))

	options := opts.server(logger)
	if apiServer != nil {
		options.Restored = apiServer.Restored()
	}
	hub, err := server.New(ctx, config, options)
	if err != nil {
		if apiServer != nil {
			awaitCorrection(ctx, err, logger)
		}
		return interrupted(ctx, err)
	}
	go func() {
		defer close(ready)
		announce(ctx, hub, opts, started, logger)
	}()
	if err := hub.Start(ctx); err != nil {
		return interrupted(ctx, err)
	}
	logger.Info("Stopping hub")
	return nil
}

// warnOfMissingAgents says at the start what would otherwise be noticed when the first machine is added.
func warnOfMissingAgents(opts *serveOptions, logger *slog.Logger) {
	if !opts.hub.Providers.Has(provider.ControlPlane) {
		return // it has no gateway
	}
	if missing := downloads.Missing(opts.hub.AssetsDir); len(missing) > 0 {
		logger.Warn("Agents are missing in --assets-dir; machines that need them cannot be added with the hub's command", "assetsDir",
			opts.hub.AssetsDir, "missing", missing)
	}
}

// correctionTime is how long the embedded API server stays up for the correction of a Secret because of which the hub does not start.
const correctionTime = time.Minute

// awaitCorrection waits while an operator may correct a Secret because of which the hub does not start: nothing but this process serves
// the API that has the Secret. The hub ends afterwards, and is started again by systemd or the operator.
func awaitCorrection(ctx context.Context, err error, logger *slog.Logger) {
	if _, stored := errors.AsType[pki.StoredError](err); !stored {
		return
	}
	logger.Error("The hub does not start; its API server stays up for a while, so that the Secret can be corrected",
		"duration", correctionTime.String(), "error", err)
	select {
	case <-time.After(correctionTime):
	case <-ctx.Done():
	}
}

// connect returns how to reach the Kubernetes API, and starts one where there is none.
func connect(ctx context.Context, opts *serveOptions, logger *slog.Logger) (*rest.Config, *embedded.Server, error) {
	var config *rest.Config
	var err error
	switch opts.mode() {
	case modeKubeconfig:
		config, err = clientcmd.BuildConfigFromFlags("", opts.kubeconfig)
		if err != nil {
			return nil, nil, fmt.Errorf("reading --kubeconfig: %w", err)
		}
		go watchCredential(ctx, config.TLSClientConfig, opts.kubeconfig, logger)
	case modeInCluster:
		config, err = rest.InClusterConfig()
		if err != nil {
			return nil, nil, fmt.Errorf("using the cluster this hub runs in: %w", err)
		}
	default:
		return startEmbedded(ctx, opts, logger)
	}
	config.QPS, config.Burst = 100, 200
	return config, nil, nil
}

func startEmbedded(ctx context.Context, opts *serveOptions, logger *slog.Logger) (*rest.Config, *embedded.Server, error) {
	begin := time.Now()
	// The server is stopped by serve, after everything that uses it, and not by the signal itself.
	serverCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)() // until it is up, an interrupt ends the start
	options, audit := opts.api, opts.hub.Audit
	options.Logger, options.PortFlag, options.Registerer = logger, "--api-port", metrics.Registry
	options.TrimWatched = managedfields.Trim
	options.Audit.MaxAge, options.Audit.MaxBackups, options.Audit.MaxSize = audit.MaxAge, audit.MaxBackups, audit.MaxSize
	apiServer, err := embedded.Start(serverCtx, options)
	if err != nil {
		cancel()
		return nil, nil, interrupted(ctx, err)
	}
	logger.Info("Embedded API server is ready", "took", elapsed(begin), "kubeconfig", apiServer.Kubeconfig())
	return apiServer.RestConfig(), apiServer, nil
}

// cancelWhenDone ends the returned context when the embedded server has ended: nothing works without it.
func cancelWhenDone(ctx context.Context, apiServer *embedded.Server, logger *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-apiServer.Done():
			logger.Error("The embedded API server has ended, stopping")
			cancel()
		}
	}()
	return ctx, cancel
}

// interrupted makes nothing of an error that is only the echo of an interrupt.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)) {
		return nil
	}
	return err
}

// announce says when the hub is ready for work.
func announce(ctx context.Context, hub *server.Hub, opts *serveOptions, started time.Time, logger *slog.Logger) {
	if hub.WaitReady(ctx) {
		debug.FreeOSMemory() // a start leaves much behind that is never needed again
		logger.Info("Hub is ready", "took", elapsed(started), "serverURL", opts.hub.Settings.ServerURL)
	}
}

func elapsed(since time.Time) string { return time.Since(since).Round(10 * time.Millisecond).String() }
