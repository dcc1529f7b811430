// Package clusteragent connects a whole cluster to its hub: it exchanges the registration token for a credential of its own, keeps the
// tunnel up, and forwards what comes through it to the cluster's Kubernetes API in the name of the user whom the hub has authenticated.
//
// It runs as a pod of the cluster or by hand with a kubeconfig. It opens nothing but what the hub may ask for: the Kubernetes API. No
// credential of the cluster leaves it.
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
	// Network and Address are what the hub dials for the Kubernetes API; nothing else is answered.
	Network = "drover"
	Address = "kube-api"

	// sessions is to how many replicas of the hub the cluster is connected.
	sessions = 2
	// grace is for how long requests may go on when the agent is told to stop. Watches and the like end at once: they have no end to wait for.
	grace = 10 * time.Second
)

// Options of the agent. Kubernetes, Namespace, Credentials and Log must be set.
type Options struct {
	// Kubernetes leads to the cluster's API.
	Kubernetes *rest.Config
	// Namespace is where the agent keeps its credential.
	Namespace string
	// Credentials is the folder of the registration Secret: files url, token and ca.crt. They are read when they are needed.
	Credentials string
	// Server is the hub's URL; empty means what the folder says.
	Server string
	// CAChecksum is the SHA-256 of what the hub shows as its authorities at /cacerts, which counts where the folder has no ca.crt.
	CAChecksum string
	// Cluster is the management Cluster, if known. It is compared with what the hub says and not used otherwise.
	Cluster string
	// AllowGroups are groups that the hub may speak for though they may do everything: system:masters.
	AllowGroups []string
	// HealthAddress is where probes and metrics are answered; empty answers them nowhere.
	HealthAddress string
	Version       string
	Log           *slog.Logger
}

var checksumPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Validate names what does not fit by the name of the command's flag.
func (o Options) Validate() error {
	var errs []error
	if o.Server != "" {
		if u, err := url.Parse(o.Server); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			errs = append(errs, fmt.Errorf("--server (CATTLE_SERVER): %q is not of the form https://hub.example.com", o.Server))
		}
	}
	if o.CAChecksum != "" && !checksumPattern.MatchString(o.CAChecksum) {
		errs = append(errs, fmt.Errorf("--ca-checksum (CATTLE_CA_CHECKSUM): %q is not the 64 hexadecimal digits that sha256sum prints for <server>/cacerts", o.CAChecksum))
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace: is empty; name the namespace in which the agent may keep a Secret"))
	}
	for _, group := range o.AllowGroups {
		if group != mastersGroup {
			errs = append(errs, fmt.Errorf("--allow-group: %q needs no permission here; only %s can be allowed", group, mastersGroup))
		}
	}
	if _, port, err := net.SplitHostPort(o.HealthAddress); o.HealthAddress != "" && (err != nil || port == "") {
		errs = append(errs, fmt.Errorf("--health-address: %q is not of the form [address]:port; write :9440, or nothing for none", o.HealthAddress))
	}
	return errors.Join(errs...)
}

// Run connects the cluster until ctx is done. It fails only where it cannot begin.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	api, err := newAPI(o.Kubernetes, o.AllowGroups, o.Log)
	if err != nil {
		return fmt.Errorf("preparing the way to the Kubernetes API: %w", err)
	}
	secret, err := newStore(o.Kubernetes, o.Namespace)
	if err != nil {
		return fmt.Errorf("preparing the way to the Kubernetes API: %w", err)
	}
	hub := &hub{folder: o.Credentials, server: o.Server, checksum: o.CAChecksum}
	keeper := &keeper{store: secret, hub: hub, cluster: o.Cluster, log: o.Log, turn: make(chan struct{}, 1)}
	client := tunnel.New(tunnel.Options{
		Agent: "cluster/" + o.Version, Sessions: sessions, Log: o.Log, Refused: keeper.refuse, Dial: api.dial,
		Access: func(ctx context.Context) (tunnel.Access, error) {
			credential, err := keeper.credential(ctx)
			if err != nil {
				return tunnel.Access{}, err
			}
			return hub.access(ctx, credential)
		},
	})
	return o.serve(ctx, api, keeper, client)
}

// serve runs the parts, and stops them in order: first the tunnel, once requests have come to their end, then what answers them.
func (o Options) serve(ctx context.Context, api *api, keeper *keeper, client *tunnel.Client) error {
	health, err := listenHealth(ctx, o.HealthAddress)
	if err != nil {
		return err
	}
	o.Log.Info("Cluster-agent started", "version", o.Version, "kubernetes", o.Kubernetes.Host, "namespace", o.Namespace)
	var background sync.WaitGroup
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer background.Wait()
	defer stop()
	background.Go(api.serve)
	background.Go(func() { keeper.run(inner) })
	background.Go(func() {
		serveHealth(inner, health, healthHandler(o.Version, client.Status, api.status, keeper.expires), o.Log)
	})
	connected, disconnect := context.WithCancel(inner)
	defer disconnect()
	var tunnels sync.WaitGroup
	tunnels.Go(func() { client.Run(connected) })
	<-ctx.Done()
	o.Log.Info("Cluster-agent stops")
	api.quiet(grace)
	disconnect()
	tunnels.Wait()
	api.close()
	o.Log.Info("Cluster-agent stopped")
	return nil
}
