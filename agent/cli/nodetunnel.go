package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/tunnel"
)

// serveTunnel keeps a tunnel to the hub for as long as ctx is not done, where the configuration says so.
func serveTunnel(ctx context.Context, cfg config.Config, log *slog.Logger) {
	if !cfg.Tunnel.Enabled {
		return
	}
	log.Info("The hub may reach addresses through this machine", "allow", cfg.Tunnel.Allow)
	tunnel.New(tunnel.Options{
		Agent: "node/" + Version, Dial: tunnel.AllowList(cfg.Tunnel.Allow), Log: log,
		Access: func(context.Context) (tunnel.Access, error) { return nodeAccess(cfg.ConnectionInfoFile) },
	}).Run(ctx)
}

// nodeAccess is by what the machine reads its plan with. The file is read each time, since the hub's authorities and the token change.
func nodeAccess(file string) (tunnel.Access, error) {
	connection, err := config.LoadConnection(file)
	if err != nil {
		return tunnel.Access{}, err
	}
	hub, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig))
	if err != nil {
		return tunnel.Access{}, fmt.Errorf("decoding kubeconfig of the connection info: %w", err)
	}
	if hub.BearerToken == "" || hub.Insecure {
		return tunnel.Access{}, errors.New("the connection info does not show the hub a token, or does not verify the hub's certificate; there is no tunnel without")
	}
	trusted, err := rest.TLSConfigFor(hub)
	if err != nil {
		return tunnel.Access{}, fmt.Errorf("decoding kubeconfig of the connection info: %w", err)
	}
	if trusted == nil {
		trusted = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	trusted.NextProtos = []string{"http/1.1"}
	return tunnel.Access{Server: hub.Host, Token: hub.BearerToken, TLS: trusted, Proxy: hub.Proxy}, nil
}
