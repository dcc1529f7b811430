package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/metrics"
	"github.com/drover-dev/drover/agent/tunnel"
)

// The servers run until ctx is done, if the configuration enables them. If one fails, the agent logs it and continues: applying plans does
// not depend on them.

// serveMetrics serves metrics and health on metricsAddress.
func serveMetrics(ctx context.Context, cfg config.Config, engines metrics.Engines, log *slog.Logger) {
	address, err := config.ParseMetricsAddress(cfg.MetricsAddress)
	if err == nil && address == (config.MetricsAddress{}) {
		return
	}
	if err == nil {
		err = metrics.Serve(ctx, address, metrics.Options{Engines: engines, Version: Version, Log: log})
	}
	if err != nil {
		log.Error("Serving metrics failed", "error", err)
	}
}

// serveControl answers the commands of operators on the agent's socket.
func serveControl(ctx context.Context, cfg config.Config, configFile string, service *service, log *slog.Logger) {
	path := cfg.SocketPath()
	if path == "" {
		return
	}
	listener, err := fs.Listen(path)
	if err == nil {
		server := &control.Server{Engines: service.agents, Upgrade: service.upgrade, Log: log, Status: control.Status{
			Version: Version, PID: os.Getpid(), Started: time.Now().UTC(), ConfigFile: configFile, StateDirectory: cfg.StateDirectory,
		}}
		err = server.Serve(ctx, listener)
	}
	if err != nil {
		log.Error("Serving the agent's socket failed; status, logs and retry do not reach this agent", "socket", path, "error", err)
	}
}

// serveTunnel connects the reverse tunnel to the hub.
func serveTunnel(ctx context.Context, cfg config.Config, log *slog.Logger) {
	if !cfg.Tunnel.Enabled {
		return
	}
	log.Info("Tunnel enabled", "allow", cfg.Tunnel.Allow)
	tunnel.New(tunnel.Options{
		Agent: "node/" + Version, Dial: tunnel.AllowList(cfg.Tunnel.Allow), Log: log,
		Access: func(context.Context) (tunnel.Access, error) { return tunnelAccess(cfg.ConnectionInfoFile) },
	}).Run(ctx)
}

// tunnelAccess returns the credentials with which the machine reads its plan. The file is read every time, since the hub's CA and the token
// change.
func tunnelAccess(file string) (tunnel.Access, error) {
	connection, err := config.LoadConnection(file)
	if err != nil {
		return tunnel.Access{}, err
	}
	hub, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig))
	if err != nil {
		return tunnel.Access{}, fmt.Errorf("decoding the kubeconfig of the connection info: %w", err)
	}
	if hub.BearerToken == "" || hub.Insecure {
		return tunnel.Access{}, errors.New(
			"the connection info has no token or disables verification of the hub's certificate: the tunnel needs both")
	}
	trusted, err := rest.TLSConfigFor(hub)
	if err != nil {
		return tunnel.Access{}, fmt.Errorf("decoding the kubeconfig of the connection info: %w", err)
	}
	if trusted == nil {
		trusted = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	trusted.NextProtos = []string{"http/1.1"}
	return tunnel.Access{Server: hub.Host, Token: hub.BearerToken, TLS: trusted, Proxy: hub.Proxy}, nil
}
