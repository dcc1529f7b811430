package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-dev/drover/hub/access/apiproxy"
	"github.com/drover-dev/drover/hub/access/machinessh"
	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/access/tunnel"
	"github.com/drover-dev/drover/hub/gateway"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
)

// requestsTime is how long requests of users to clusters may take when a hub stops whose requests no other replica takes.
const requestsTime = 5 * time.Second

// listener serves machines, agents, users and other replicas. The manager starts it when its caches are filled. It outlives the manager:
// while it closes its connections one after the other, another replica is already the leader.
type listener struct {
	gateway   *gateway.Server
	tunnels   *tunnel.Manager
	directory *replicas.Directory
	// membership is nil where there can be only one replica.
	membership *replicas.Membership
	// audit is nil where no audit log is written.
	audit *apiproxy.AuditLog
	proxy *apiproxy.Handler
	ssh   *machinessh.Handler
	log   logr.Logger

	// drainDelay is how long load balancers need to see that a replica is not ready; over drainTime connections are closed.
	drainDelay, drainTime time.Duration

	lifetime context.Context
	stop     context.CancelFunc
	started  atomic.Bool
	// ended is closed, and err set, when everything that was started has stopped.
	ended chan struct{}
	err   error
}

// newListener creates everything but the gateway, which needs what other parts create.
func newListener(mgr ctrl.Manager, identity *servingcert.Identity, opts Options) (*listener, error) {
	log := logr.FromSlogHandler(opts.Logger.Handler())
	l := &listener{log: log.WithName("drain"), drainDelay: opts.DrainDelay, drainTime: opts.DrainTime, ended: make(chan struct{})}
	l.lifetime, l.stop = context.WithCancel(context.Background())
	id := replicaID()
	l.tunnels = tunnel.New(tunnel.Options{
		Logger: log.WithName("tunnel"), Registerer: metrics.Registry, ReplicaID: id,
		Replicas: func() int { return l.directory.Replicas() },
	})
	metrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "drover_gateway_certificate_expiry_timestamp_seconds",
		Help: "When the serving certificate of the gateway ends, in seconds since 1970.",
	}, func() float64 { return float64(identity.ServesUntil().Unix()) }))
	config, err := identity.PeerTLS(opts.Settings.ServerURL)
	if err != nil {
		return nil, err
	}
	l.directory = replicas.New(replicas.Options{
		Local: l.tunnels, ReplicaID: id, Logger: log.WithName("peers"), Registerer: metrics.Registry, TLS: config, Roots: identity.PeerRoots(),
	})
	if err := mgr.AddReadyzCheck("gateway", l.checkReady); err != nil {
		return nil, fmt.Errorf("adding health checks: %w", err)
	}
	if opts.AdvertiseAddress != "" {
		l.membership = &replicas.Membership{
			Directory: l.directory, Client: mgr.GetClient(), Cache: mgr.GetCache(),
			Namespace: opts.Settings.SystemNamespace, Address: opts.AdvertiseAddress, Logger: log.WithName("peers"),
		}
	}
	return l, nil
}

// replicaID returns a name that no other process of a hub has, nor this one after a restart. It is valid in names of objects.
func replicaID() string {
	host, err := os.Hostname()
	host = strings.ToLower(host)
	if err != nil || len(host) > 100 || len(validation.IsDNS1123Subdomain(host)) > 0 {
		host = "hub"
	}
	return host + "-" + rand.String(6)
}

// checkReady fails until the gateway serves, and as soon as the replica begins to stop.
func (l *listener) checkReady(*http.Request) error { return l.gateway.Ready() }

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (l *listener) NeedLeaderElection() bool { return false }

// Start returns when ctx ends, which leaves everything running, or when something fails.
func (l *listener) Start(ctx context.Context) error {
	l.started.Store(true)
	group, lifetime := errgroup.WithContext(l.lifetime)
	// The gateway may need the other replicas while it stops.
	directoryContext, stopDirectory := context.WithCancel(context.WithoutCancel(lifetime))
	group.Go(func() error {
		defer stopDirectory()
		return l.serve(lifetime)
	})
	group.Go(func() error { return l.directory.Start(directoryContext) })
	if l.membership != nil {
		group.Go(func() error { return l.membership.Start(lifetime) })
	}
	go func() {
		l.err = group.Wait()
		close(l.ended)
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-l.ended:
		return l.err
	}
}

// serve runs the gateway, and the audit log until the last request is logged.
func (l *listener) serve(ctx context.Context) error {
	auditContext, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	audited := make(chan error, 1)
	go func() { audited <- l.audit.Start(auditContext) }()
	err := l.gateway.Start(ctx)
	l.ssh.Close()
	l.proxy.Close()
	stop()
	return errors.Join(err, <-audited)
}

// startDraining makes load balancers and other replicas leave this one out and waits until they have. It returns how long the rest may
// take.
func (l *listener) startDraining() (drainTime time.Duration) {
	alone := l.directory.Replicas() == 1
	l.gateway.Unready()
	l.directory.Drain()
	if alone {
		// No other replica can take over: do not wait.
		return 0
	}
	l.log.Info("Draining: not ready, still serving until load balancers have noticed",
		"delay", l.drainDelay.String(), "then", l.drainTime.String())
	select {
	case <-time.After(l.drainDelay):
	case <-l.ended:
	}
	return l.drainTime
}

// drain ends the watches of machines and the sessions of agents one after the other, and waits, at most drainTime, for requests of users.
func (l *listener) drain(drainTime time.Duration) {
	ctx, cancel := context.WithTimeout(l.lifetime, drainTime)
	defer cancel()
	l.gateway.Drain(drainTime)
	if drainTime == 0 {
		// All tunnels end at once, and with them what is asked of clusters.
		requests, stop := context.WithTimeout(l.lifetime, requestsTime)
		l.proxy.Drain(requests)
		stop()
	}
	l.tunnels.Drain(ctx, drainTime)
	l.gateway.WaitStreams(ctx)
}

// close stops what still runs. It must be called after the manager has stopped.
func (l *listener) close() error {
	l.stop()
	if !l.started.Load() {
		return nil
	}
	<-l.ended
	return l.err
}
