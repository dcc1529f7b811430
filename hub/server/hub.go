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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-dev/drover/hub/access/apiproxy"
	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	"github.com/drover-dev/drover/hub/api/admission"
	"github.com/drover-dev/drover/hub/api/crds"
	"github.com/drover-dev/drover/hub/gateway"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/capi"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/operations"
)

// Options configure a hub. Of fields without a default, zero is not valid.
type Options struct {
	// Settings are the operator's settings.
	Settings settings.Settings
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

	// WebhookListen is the address (host:port) of the webhooks.
	WebhookListen string
	// WebhookURL is the URL under which the API server reaches the webhooks. Default: the Service WebhookService.
	WebhookURL string

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

	// Audit configures the audit log of users' requests to clusters.
	Audit apiproxy.AuditOptions

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
	// CACerts are the PEM certificates with which machines trust the gateway.
	CACerts []byte

	listener *listener
	// persistent is the lifetime of the manager's cache and webhooks.
	persistent *lifetime
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
		h.listener.stop()
		return err
	case <-ctx.Done():
	}
	drainTime := h.listener.startDraining()
	stopManager()
	h.listener.drain(drainTime)
	err := errors.Join(<-ended, h.listener.close())
	h.persistent.end()
	return err
}

// New installs the hub's CRDs, policies, roles and Secrets in the API and returns the hub. Nothing runs before Start.
func New(ctx context.Context, config *rest.Config, opts Options) (_ *Hub, err error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	// The manager's caches are empty until it starts, so preparations read from the API server.
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	if err := ensureNamespace(ctx, direct, opts.Settings.SystemNamespace); err != nil {
		return nil, err
	}
	if err := checkCAPI(ctx, direct, opts); err != nil {
		return nil, err
	}
	target, certificate, err := prepareWebhooks(ctx, direct, opts)
	if err != nil {
		return nil, err
	}

	begin := time.Now()
	if err := crds.Install(ctx, config, crds.Options{SkipCAPI: opts.ExternalCAPI, Conversion: conversion(target)}); err != nil {
		return nil, err
	}
	if err := grantCAPI(ctx, direct); err != nil {
		return nil, err
	}
	if err := grantProxy(ctx, direct); err != nil {
		return nil, err
	}
	if err := admission.Install(ctx, direct); err != nil {
		return nil, err
	}
	opts.Logger.Info("CRDs installed", "took", time.Since(begin).Round(10*time.Millisecond).String())

	identity, err := servingcert.Ensure(ctx, direct, opts.Settings, opts.GatewayListen)
	if err != nil {
		return nil, fmt.Errorf("preparing the gateway's certificates: %w", err)
	}
	opts.Settings.CACerts = identity.CACerts()
	if err := publishSettings(ctx, direct, opts); err != nil {
		return nil, err
	}
	signer, err := signing.Ensure(ctx, direct, opts.Settings.SystemNamespace)
	if err != nil {
		return nil, err
	}

	issuer, err := tokens.Ensure(ctx, direct, opts.Settings.SystemNamespace)
	if err != nil {
		return nil, err
	}

	persistent := newLifetime()
	defer func() {
		if err != nil {
			persistent.cancel()
		}
	}()
	mgr, err := newManager(opts, config, scheme, certificate, persistent)
	if err != nil {
		return nil, fmt.Errorf("making manager: %w", err)
	}
	clusterCache, err := capi.SetupWithManager(ctx, mgr, capi.Options{External: opts.ExternalCAPI})
	if err != nil {
		return nil, err
	}
	if !opts.ExternalCAPI {
		if err := capi.RegisterWebhooks(ctx, direct, target); err != nil {
			return nil, err
		}
		if err := mgr.Add(certificate); err != nil {
			return nil, fmt.Errorf("adding the webhook certificate: %w", err)
		}
		if err := addHealthChecks(mgr); err != nil {
			return nil, err
		}
	}
	listener, err := newListener(mgr, identity, opts)
	if err != nil {
		return nil, err
	}
	releases, err := addReleases(ctx, mgr, opts)
	if err != nil {
		return nil, err
	}
	err = addControllers(ctx, mgr, shared{
		settings: opts.Settings, signer: signer, issuer: issuer, clusterCache: clusterCache, releases: releases,
		access: &tunnelaccess.Access{
			Settings: opts.Settings, Presence: listener.directory, Issue: issueUserTokens(issuer), Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
			Now: time.Now,
		},
		operations: operations.NewMetrics(metrics.Registry, mgr.GetCache()),
	})
	if err != nil {
		return nil, err
	}
	if err := addGateway(ctx, mgr, listener, identity, signer, issuer, opts); err != nil {
		return nil, err
	}
	return &Hub{Manager: mgr, CACerts: opts.Settings.CACerts, listener: listener, persistent: persistent}, nil
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

func ensureNamespace(ctx context.Context, c client.Client, name string) error {
	err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

func checkCAPI(ctx context.Context, c client.Reader, opts Options) error {
	if opts.ExternalCAPI {
		return nil
	}
	err := capi.CheckNotInstalled(ctx, c)
	if errors.Is(err, capi.ErrInstalled) {
		return fmt.Errorf("%w; use it with --capi=external", err)
	}
	return err
}

func addGateway(
	ctx context.Context, mgr ctrl.Manager, listener *listener, identity *servingcert.Identity, signer *signing.Signer, issuer *tokens.Issuer,
	opts Options,
) error {
	if err := gateway.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	mounts, err := addUsers(mgr, issuer, listener, opts)
	if err != nil {
		return err
	}
	server, err := gateway.New(gateway.Options{
		Settings:   opts.Settings,
		Identity:   identity,
		SigningKey: signer.Public(),
		Listen:     opts.GatewayListen,
		Listener:   opts.GatewayListener,
		AssetsDir:  opts.AssetsDir,
		Client:     mgr.GetClient(),
		APIReader:  mgr.GetAPIReader(),
		Cache:      mgr.GetCache(),
		RestConfig: mgr.GetConfig(),
		Logger:     logr.FromSlogHandler(opts.Logger.Handler()).WithName("gateway"),
		Mounts:     mounts,
		Issuer:     issuer,
		Tunnels:    listener.tunnels,
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

// addHealthChecks makes /healthz and /readyz depend on the webhooks. That the gateway serves is checked by the listener.
func addHealthChecks(mgr ctrl.Manager) error {
	started := mgr.GetWebhookServer().StartedChecker()
	if err := errors.Join(mgr.AddHealthzCheck("webhook", started), mgr.AddReadyzCheck("webhook", started)); err != nil {
		return fmt.Errorf("adding health checks: %w", err)
	}
	return nil
}
