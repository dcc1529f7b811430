// Package app puts the hub together: definitions and webhooks registered with the API server, and one manager with Cluster API's
// controllers, Drover's own and the gateway. Commands and integration tests both start the hub through it, so that what is tested is
// what runs. It must not read flags or the environment, and it decides nothing about clusters or machines.
package app

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

	"github.com/drover-dev/drover/hub/admission"
	"github.com/drover-dev/drover/hub/apiproxy"
	"github.com/drover-dev/drover/hub/capi"
	"github.com/drover-dev/drover/hub/crds"
	"github.com/drover-dev/drover/hub/gateway"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/hub/signing"
	"github.com/drover-dev/drover/hub/tokens"
	"github.com/drover-dev/drover/hub/tunnelaccess"
)

// Options say what the hub runs and where it listens.
type Options struct {
	Settings settings.Settings
	Logger   *slog.Logger
	// LogHandler is for what the manager and its controllers log; the Logger's own where it is nil.
	LogHandler slog.Handler

	// GatewayListen is where machines reach the gateway. GatewayListener wins over it.
	GatewayListen   string
	GatewayListener net.Listener
	// AssetsDir holds the agents that machines download.
	AssetsDir string

	// WebhookListen is where the webhooks listen. WebhookURL is how the API server reaches them; empty is the Service WebhookService.
	WebhookListen string
	WebhookURL    string

	// HealthListen, MetricsListen and PprofListen are addresses, or "0" for none.
	HealthListen  string
	MetricsListen string
	PprofListen   string

	// ReleaseData is a file or URL with release data; empty is what this program was built with. ReleaseDataCache is the file that keeps
	// what was fetched.
	ReleaseData      string
	ReleaseDataCache string

	// Audit is where requests of users for clusters are written down.
	Audit apiproxy.AuditOptions

	// ExternalCAPI leaves Cluster API's controllers, webhooks and definitions to an installation that is already there.
	ExternalCAPI bool
	// LeaderElection is for a hub that may have more than one replica.
	LeaderElection bool
	// AdvertiseAddress is host:port at which other replicas reach this one's gateway; empty where there can be only one replica.
	AdvertiseAddress string
	// DrainDelay is how long a replica that stops goes on as before, so that load balancers leave it out; DrainTime is the time over which it
	// then lets go of its connections. Where there is no other replica neither is waited for.
	DrainDelay, DrainTime time.Duration
}

// App is a hub that is ready to start.
type App struct {
	ctrl.Manager
	// CACerts are the PEM certificates with which machines trust the gateway.
	CACerts []byte

	front *front
	// stopCaches ends what the manager's cache runs in.
	stopCaches context.CancelFunc
}

// Start runs the hub until ctx ends, or something breaks. On the way down other replicas get time to take over, if there are any.
func (a *App) Start(ctx context.Context) error {
	defer a.stopCaches()
	managed, stopManager := context.WithCancel(context.WithoutCancel(ctx))
	defer stopManager()
	ended := make(chan error, 1)
	go func() { ended <- a.Manager.Start(managed) }()
	select {
	case err := <-ended:
		// A replica that has lost the lead ends here too: its controllers may still be at work, so that nothing is waited for.
		a.front.stop()
		return err
	case <-ctx.Done():
	}
	within := a.front.announceEnd()
	stopManager()
	a.front.letGo(within)
	return errors.Join(<-ended, a.front.end())
}

// New installs what the hub needs in the API and returns the hub. Nothing runs before Start.
func New(ctx context.Context, config *rest.Config, opts Options) (_ *App, err error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	// Before the manager has started its caches are empty, so what is prepared here is read from the API server.
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
	opts.Logger.Info("Resource definitions are installed", "took", time.Since(begin).Round(10*time.Millisecond).String())

	identity, err := gateway.EnsureCA(ctx, direct, opts.Settings, opts.GatewayListen)
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

	life, stopCaches := context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			stopCaches()
		}
	}()
	mgr, err := newManager(opts, config, scheme, certificate, lasting(life))
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
	front, err := newFront(mgr, identity, opts)
	if err != nil {
		return nil, err
	}
	releases, err := addReleases(ctx, mgr, opts)
	if err != nil {
		return nil, err
	}
	err = addControllers(ctx, mgr, shared{
		settings: opts.Settings, signer: signer, issuer: issuer, clusterCache: clusterCache, releases: releases, presence: front.directory,
		access: &tunnelaccess.Access{
			Settings: opts.Settings, Presence: front.directory, Issue: issueUserTokens(issuer), Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: time.Now,
		},
	})
	if err != nil {
		return nil, err
	}
	if err := addGateway(ctx, mgr, front, identity, signer, issuer, opts); err != nil {
		return nil, err
	}
	return &App{Manager: mgr, CACerts: opts.Settings.CACerts, front: front, stopCaches: stopCaches}, nil
}

// WaitReady returns true when the hub has won its election, where there is one, and its caches have been filled, and false when ctx ends
// first.
func (a *App) WaitReady(ctx context.Context) bool {
	select {
	case <-a.Elected():
		return a.GetCache().WaitForCacheSync(ctx)
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

func addGateway(ctx context.Context, mgr ctrl.Manager, front *front, identity *gateway.Identity, signer *signing.Signer, issuer *tokens.Issuer, opts Options) error {
	if err := gateway.IndexMachines(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	mounts, err := addUsers(mgr, issuer, front, opts)
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
		Tunnels:    front.tunnels,
		Peers:      front.directory,
	})
	if err != nil {
		return err
	}
	front.gateway = server
	if err := mgr.Add(front); err != nil {
		return fmt.Errorf("adding the gateway: %w", err)
	}
	return nil
}

func addHealthChecks(mgr ctrl.Manager) error {
	started := mgr.GetWebhookServer().StartedChecker()
	if err := errors.Join(mgr.AddHealthzCheck("webhook", started), mgr.AddReadyzCheck("webhook", started)); err != nil {
		return fmt.Errorf("adding health checks: %w", err)
	}
	return nil
}
