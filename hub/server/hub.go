// Package server puts the hub together: definitions and webhooks registered with the API server, and one manager with Cluster API's
// controllers, Drover's own and the gateway. Commands and integration tests both start the hub through it, so that what is tested is
// what runs. It must not read flags or the environment, and it decides nothing about clusters or machines.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-dev/drover/hub/access/apiproxy"
	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/controllers/drivermachine"
	"github.com/drover-dev/drover/hub/controllers/plansecret"
	"github.com/drover-dev/drover/hub/controllers/rkecontrolplane"
	"github.com/drover-dev/drover/hub/gateway"
	"github.com/drover-dev/drover/hub/gateway/downloads"
	"github.com/drover-dev/drover/hub/nodedriver/jobs"
	"github.com/drover-dev/drover/hub/server/capi"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/hub/util/pace"
)

// Options configure a hub. Of fields without a default, zero is not valid.
type Options struct {
	// Settings are the operator's settings.
	Settings settings.Settings
	// Version is that of this program. It replaces no CRDs that a newer one has applied.
	Version string
	// Logger is for the hub's own messages.
	Logger *slog.Logger
	// LogHandler is for the messages of the manager and its controllers. Default: the Logger's handler.
	LogHandler slog.Handler

	// GatewayListen is the address (host:port) of the gateway.
	GatewayListen string
	// GatewayListener, if set, is used instead of GatewayListen.
	GatewayListener net.Listener
	// AssetsDir holds the agents that machines download.
	AssetsDir string

	// NodeDriverDir holds programs of node drivers, those that are built in and those that were downloaded. Without it there are none. With
	// NodeDriverImage it is a directory of that image, and holds those that are built in.
	NodeDriverDir string
	// NodeDriverImage is an image with the hub's program. With it, node drivers run in Jobs in the namespace of the hub's Secrets, otherwise
	// in processes of the hub. NodeDriverPullSecrets are names of Secrets there with credentials for its registry.
	NodeDriverImage       string
	NodeDriverPullSecrets []string
	// NodeDriverScheduling says where the Pods of these Jobs run.
	NodeDriverScheduling jobs.Scheduling

	// WebhookListen is the address (host:port) of the webhooks.
	WebhookListen string
	// WebhookURL is the URL under which the API server reaches the webhooks. Default: the Services AdmissionService and WebhookService.
	WebhookURL string

	// OwnerClusterRole is the ClusterRole of the hub's installation: with it the registration of the webhooks is deleted. Empty for none.
	OwnerClusterRole string

	// HealthListen is the address of /healthz and /readyz, "0" for none.
	HealthListen string
	// MetricsListen is the address of /metrics, "0" for none.
	MetricsListen string
	// PprofListen is the address of Go's profiles, "0" for none.
	PprofListen string

	// ReleaseData is a file or URL with release data. Default: the data built into this program.
	ReleaseData string
	// ReleaseDataCache is the file in which fetched release data is kept.
	ReleaseDataCache string

	// Restored is when the data of the API were restored from a backup; zero if they were not, or if that is unknown. New reads what the API
	// says of it.
	Restored time.Time

	// Audit configures the audit log of users' requests to clusters.
	Audit apiproxy.AuditOptions

	// Providers are those whose controllers this process runs; empty for all. Each provider must be run by one set of replicas. Only a process
	// with the control-plane provider has a gateway, runs Cluster API, and installs definitions, which the others wait for.
	Providers provider.Set
	// ExternalCAPI leaves Cluster API's controllers, webhooks and CRDs to an existing installation.
	ExternalCAPI bool
	// LeaderElection is needed where the hub may have more than one replica.
	LeaderElection bool
	// AdvertiseAddress is the host:port at which other replicas reach this one's gateway. It is empty where there is only one replica.
	AdvertiseAddress string
	// DrainDelay is how long a stopping replica keeps serving while load balancers leave it out. A single replica does not wait.
	DrainDelay time.Duration
	// DrainTime is the time over which it then closes its connections. A single replica closes them at once.
	DrainTime time.Duration
}

// Hub is one hub process, ready to start.
type Hub struct {
	ctrl.Manager
	// CACerts are the PEM certificates with which machines trust the gateway. Empty where no provider of the process needs them.
	CACerts []byte

	// listener is nil in a process without a gateway.
	listener *listener
	// persistent is the lifetime of the manager's cache and webhooks.
	persistent *lifetime
	// driverMachines is waited for when the hub stops; nil for none.
	driverMachines *drivermachine.Reconciler
}

// Start runs the hub until ctx ends or something fails. A hub that stops gives other replicas, if there are any, time to take over.
func (h *Hub) Start(ctx context.Context) error {
	defer h.persistent.cancel()
	managed, stopManager := context.WithCancel(context.WithoutCancel(ctx))
	defer stopManager()
	ended := make(chan error, 1)
	go func() { ended <- h.Manager.Start(managed) }()
	select {
	case err := <-ended:
		// A replica that has lost the leader election ends here too. Its controllers may still be running, so nothing is waited for.
		if h.listener != nil {
			h.listener.stop()
		}
		return err
	case <-ctx.Done():
	}
	settled := h.settle()
	if h.listener == nil {
		stopManager()
		err := h.stopped(<-ended)
		<-settled
		h.persistent.end()
		return err
	}
	drainTime := h.listener.startDraining()
	stopManager()
	h.listener.drain(drainTime)
	err := errors.Join(h.stopped(<-ended), h.listener.close())
	<-settled
	h.persistent.end()
	return err
}

// settle closes the channel when no node driver is creating a machine any more, or has had its time: drivers end with this process.
func (h *Hub) settle() <-chan struct{} {
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		if h.driverMachines != nil {
			h.driverMachines.Settle()
		}
	}()
	return settled
}

// stopped is the error of a manager that was asked to stop. It is none if a controller did not end in time: what a controller does may be
// broken off anywhere.
func (h *Hub) stopped(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		h.GetLogger().Info("A controller did not end in time; the next start continues what it did")
		return nil
	}
	return err
}

// New installs the hub's CRDs, policies, roles and Secrets in the API and returns the hub. Nothing runs before Start.
func New(ctx context.Context, config *rest.Config, opts Options) (_ *Hub, err error) {
	opts.ExternalCAPI = opts.ExternalCAPI || !opts.Providers.Has(provider.ControlPlane)
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	countRequestsTo(config)
	// The manager's caches are empty until it starts, so preparations read from the API server.
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	found, err := prepare(ctx, config, direct, &opts)
	if err != nil {
		return nil, err
	}

	persistent := newLifetime()
	defer func() {
		if err != nil {
			persistent.cancel()
		}
	}()
	mgr, err := newManager(opts, config, scheme, found.certificate, persistent)
	if err != nil {
		return nil, fmt.Errorf("making manager: %w", err)
	}
	if err := addLiveness(mgr); err != nil {
		return nil, err
	}
	if opts.LeaderElection { // nobody installs anything in an embedded API server
		if err := mgr.Add(&others{mgr.GetAPIReader(), opts}); err != nil {
			return nil, fmt.Errorf("adding the look for other programs: %w", err)
		}
	}
	core := capi.Options{
		External: opts.ExternalCAPI, NoConnections: !opts.Providers.Has(provider.ControlPlane) && !opts.Providers.Has(provider.Infrastructure),
	}
	if opts.Providers.Has(provider.ControlPlane) {
		core.NewMachine = rkecontrolplane.SetInitialVersion
		if core.Work, err = pace.NewWork(ctx, mgr.GetCache(), metrics.Registry); err != nil {
			return nil, err
		}
	}
	clusterCache, err := capi.SetupWithManager(ctx, mgr, core)
	if err != nil {
		return nil, err
	}
	if !opts.ExternalCAPI {
		if err := capi.RegisterWebhooks(ctx, direct, found.webhooks, found.owners...); err != nil {
			return nil, err
		}
		if err := found.certificate.SetupWithManager(mgr); err != nil {
			return nil, fmt.Errorf("adding the webhook certificate: %w", err)
		}
		if err := addHealthChecks(mgr); err != nil {
			return nil, err
		}
	}
	s := shared{settings: opts.Settings, signer: found.signer, issuer: found.issuer, clusterCache: clusterCache, work: core.Work}
	if s.drivers, err = newDrivers(config, opts); err != nil {
		return nil, err
	}
	s.driverMachines = &drivermachine.Reconciler{ClusterCache: clusterCache, Drivers: s.drivers, Restored: opts.Restored}
	hub := &Hub{Manager: mgr, CACerts: opts.Settings.CACerts, persistent: persistent, driverMachines: s.driverMachines}
	if !opts.Providers.Has(provider.ControlPlane) {
		if err := addCacheCheck(mgr); err != nil {
			return nil, err
		}
		return hub, addControllers(ctx, mgr, opts.Providers, s)
	}
	if err := addReinstalls(mgr, direct, found, opts); err != nil {
		return nil, err
	}
	if hub.listener, err = newListener(mgr, found.identity, opts); err != nil {
		return nil, err
	}
	if s.releases, err = addReleases(ctx, mgr, opts); err != nil {
		return nil, err
	}
	s.access = &tunnelaccess.Access{
		Settings: opts.Settings, Presence: hub.listener.directory, Issue: issueUserTokens(found.issuer),
		Verify: verifyUserTokens(found.issuer), Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: time.Now,
	}
	s.operations = operations.NewMetrics(metrics.Registry, mgr.GetCache())
	if err := operations.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	if s.agents, err = downloads.New(opts.AssetsDir, opts.Settings); err != nil {
		return nil, err
	}
	if err := addControllers(ctx, mgr, opts.Providers, s); err != nil {
		return nil, err
	}
	return hub, addGateway(ctx, mgr, hub.listener, found, s.agents, opts)
}

// WaitReady returns true when the hub is the leader and its caches are filled, and false when ctx ends first.
func (h *Hub) WaitReady(ctx context.Context) bool {
	select {
	case <-h.Elected():
		return h.GetCache().WaitForCacheSync(ctx)
	case <-ctx.Done():
		return false
	}
}

func addGateway(
	ctx context.Context, mgr ctrl.Manager, listener *listener, found *prepared, files *downloads.Files, opts Options,
) error {
	if err := gateway.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	mounts, err := addUsers(mgr, found.issuer, listener, opts)
	if err != nil {
		return err
	}
	server, err := gateway.New(gateway.Options{
		Settings:   opts.Settings,
		Identity:   found.identity,
		SigningKey: found.signer.Public(),
		Listen:     opts.GatewayListen,
		Listener:   opts.GatewayListener,
		Files:      files,
		Client:     mgr.GetClient(),
		APIReader:  mgr.GetAPIReader(),
		Cache:      mgr.GetCache(),
		RestConfig: mgr.GetConfig(),
		Logger:     logr.FromSlogHandler(opts.Logger.Handler()).WithName("gateway"),
		Mounts:     mounts,
		Issuer:     found.issuer,
		Tunnels:    listener.tunnels,
		Settle:     plansecret.Settle,
		Peers:      listener.directory,
	})
	if err != nil {
		return err
	}
	listener.gateway = server
	if err := mgr.Add(listener); err != nil {
		return fmt.Errorf("adding the gateway: %w", err)
	}
	return nil
}
