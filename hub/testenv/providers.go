package testenv

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/server/settings"
)

// RunProviders runs providers other than control-plane until ctx ends, as a Deployment of their own does, for a hub that Start has started
// in another process. kubeconfig and serverURL are those of that hub, healthListen is the address of /healthz and /readyz.
func RunProviders(
	ctx context.Context, providers provider.Set, kubeconfig, serverURL, healthListen string, logger *slog.Logger,
) error {
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.UserAgent = userAgent
	hub, err := server.New(ctx, config, server.Options{
		Settings:       settings.Settings{ServerURL: serverURL, SystemNamespace: settings.DefaultSystemNamespace},
		Logger:         logger,
		Providers:      providers,
		LeaderElection: true,
		WebhookListen:  "127.0.0.1:0",
		HealthListen:   healthListen,
		PprofListen:    "0",
		MetricsListen:  "0",
	})
	if err != nil {
		return err
	}
	return hub.Start(ctx)
}
