// Package clusteragent connects a cluster to its hub: it exchanges the registration token for its own credential, keeps the tunnel
// connected, and forwards requests from the tunnel to the cluster's Kubernetes API, with impersonation of the user whom the hub has
// authenticated.
//
// It runs as a Pod of the cluster, or outside with a kubeconfig. The hub can reach nothing but the Kubernetes API, and gets no credential
// of the cluster.
package clusteragent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/agent/tunnel"
)

const (
	// Network is the network that the hub dials for the Kubernetes API; dials of others are refused.
	Network = "drover"
	// Address is the address that the hub dials for the Kubernetes API.
	Address = "kube-api"

	// sessions is the number of replicas of the hub to which the agent connects.
	sessions = 2
	// drainTimeout bounds how long the agent waits for requests when it stops. Long-running requests such as watches are not waited for.
	drainTimeout = 10 * time.Second
)

// Options of the agent. Kubernetes, Namespace, Credentials and Log must be set.
type Options struct {
	// Kubernetes is the client configuration of the cluster's Kubernetes API.
	Kubernetes *rest.Config
	// Namespace is that of the Secret with the agent's credential.
	Namespace string
	// Credentials is the directory of the mounted registration Secret, with the files url, token and ca.crt. They are read for every use.
	Credentials string
	// Server is the hub's URL; empty is that of the file url.
	Server string
	// CAChecksum is the SHA-256 of <server>/cacerts in hexadecimal; it is used if there is no ca.crt.
	CAChecksum string
	// Cluster is the name of the management Cluster, or empty. If it differs from that of the hub, a warning is logged.
	Cluster string
	// AllowGroups are groups that the hub may impersonate although they are reserved: only system:masters.
	AllowGroups []string
	// HealthAddress is the listen address of health and metrics, [address]:port; empty disables them.
	HealthAddress string
	// Version is the version of the agent.
	Version string
	// Log must be set.
	Log *slog.Logger
}

var checksumPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Validate returns an error that lists the invalid options by the names of their flags.
func (o Options) Validate() error {
	var errs []error
	if o.Server != "" {
		u, err := url.Parse(o.Server)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			errs = append(errs, fmt.Errorf("--server (CATTLE_SERVER): must be such as https://hub.example.com, got %q", o.Server))
		}
	}
	if o.CAChecksum != "" && !checksumPattern.MatchString(o.CAChecksum) {
		errs = append(errs, fmt.Errorf(
			"--ca-checksum (CATTLE_CA_CHECKSUM): must be the sha256sum of <server>/cacerts, 64 hexadecimal digits, got %q", o.CAChecksum))
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace: is required"))
	}
	for _, group := range o.AllowGroups {
		if group != mastersGroup {
			errs = append(errs, fmt.Errorf("--allow-group: must be %s, got %q", mastersGroup, group))
		}
	}
	if _, port, err := net.SplitHostPort(o.HealthAddress); o.HealthAddress != "" && (err != nil || port == "") {
		errs = append(errs, fmt.Errorf("--health-address: must be [address]:port such as :9440, or empty, got %q", o.HealthAddress))
	}
	return errors.Join(errs...)
}

// Run connects the cluster until ctx is done. It returns an error only if it cannot start.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	api, err := newAPI(o.Kubernetes, o.AllowGroups, o.Log)
	if err != nil {
		return fmt.Errorf("creating the client of the Kubernetes API: %w", err)
	}
	store, err := newSecretStore(o.Kubernetes, o.Namespace)
	if err != nil {
		return fmt.Errorf("creating the client of the Kubernetes API: %w", err)
	}
	hub := &hubClient{directory: o.Credentials, server: o.Server, checksum: o.CAChecksum}
	credentials := newCredentialManager(store, hub, o.Cluster, o.Log)
	client := tunnel.New(tunnel.Options{
		Agent: "cluster/" + o.Version, Sessions: sessions, Log: o.Log, Unauthorized: credentials.setRefused, Dial: api.dial,
		Access: func(ctx context.Context) (tunnel.Access, error) {
			credential, err := credentials.credential(ctx)
			if err != nil {
				return tunnel.Access{}, err
			}
			return hub.access(ctx, credential)
		},
	})
	return o.serve(ctx, api, credentials, client)
}

// serve runs the components and stops them in order: the tunnel when no request is active, then the server behind it.
func (o Options) serve(ctx context.Context, api *api, credentials *credentialManager, client *tunnel.Client) error {
	health, err := listenHealth(ctx, o.HealthAddress)
	if err != nil {
		return err
	}
	o.Log.Info("Cluster agent started", "version", o.Version, "kubernetes", o.Kubernetes.Host, "namespace", o.Namespace)
	var background sync.WaitGroup
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer background.Wait()
	defer stop()
	background.Go(api.serve)
	background.Go(func() { credentials.run(inner) })
	background.Go(func() {
		serveHealth(inner, health, healthHandler(o.Version, client.Status, api.status, credentials.expiresAt), o.Log)
	})
	connected, disconnect := context.WithCancel(inner)
	defer disconnect()
	var tunnels sync.WaitGroup
	tunnels.Go(func() { client.Run(connected) })
	<-ctx.Done()
	o.Log.Info("Cluster agent stopping")
	api.drain(drainTimeout)
	disconnect()
	tunnels.Wait()
	api.close()
	o.Log.Info("Cluster agent stopped")
	return nil
}
