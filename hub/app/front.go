package app

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
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-dev/drover/hub/apiproxy"
	"github.com/drover-dev/drover/hub/gateway"
	"github.com/drover-dev/drover/hub/peers"
	"github.com/drover-dev/drover/hub/tunnel"
)

// front is what machines, agents, people and other replicas are connected to. The manager starts it, once its caches are filled, and it
// outlives the manager: while it lets go of its connections little by little, another replica is already leading.
type front struct {
	gateway   *gateway.Server
	tunnels   *tunnel.Manager
	directory *peers.Directory
	// membership is nil where there can be only one replica.
	membership *peers.Membership
	// audit is nil where no audit log is written.
	audit *apiproxy.AuditLog
	proxy *apiproxy.Handler
	log   logr.Logger

	// delay is how long load balancers need to see that a replica is not ready, within is the time over which connections are let go.
	delay, within time.Duration

	life    context.Context
	stop    context.CancelFunc
	started atomic.Bool
	leaving atomic.Bool
	// ended is closed, and err set, when nothing of what was started runs any more.
	ended chan struct{}
	err   error
}

// newFront makes all of it but the gateway, which needs what others make.
func newFront(mgr ctrl.Manager, identity *gateway.Identity, opts Options) (*front, error) {
	log := logr.FromSlogHandler(opts.Logger.Handler())
	f := &front{log: log.WithName("drain"), delay: opts.DrainDelay, within: opts.DrainTime, ended: make(chan struct{})}
	f.life, f.stop = context.WithCancel(context.Background())
	id := replicaID()
	f.tunnels = tunnel.New(tunnel.Options{
		Logger: log.WithName("tunnel"), Registerer: metrics.Registry, ReplicaID: id,
		Replicas: func() int { return f.directory.Replicas() },
	})
	config, err := identity.PeerTLS(opts.Settings.ServerURL)
	if err != nil {
		return nil, err
	}
	f.directory = peers.New(peers.Options{
		Local: f.tunnels, ReplicaID: id, Logger: log.WithName("peers"), Registerer: metrics.Registry, TLS: config, Roots: identity.PeerRoots(),
	})
	if err := mgr.AddReadyzCheck("draining", f.checkReady); err != nil {
		return nil, fmt.Errorf("adding health checks: %w", err)
	}
	if opts.AdvertiseAddress != "" {
		f.membership = &peers.Membership{
			Directory: f.directory, Client: mgr.GetClient(), Cache: mgr.GetCache(),
			Namespace: opts.Settings.SystemNamespace, Address: opts.AdvertiseAddress, Logger: log.WithName("peers"),
		}
	}
	return f, nil
}

// replicaID is a name that no other process of a hub has, nor this one after a restart. It can be part of an object's name.
func replicaID() string {
	host, err := os.Hostname()
	host = strings.ToLower(host)
	if err != nil || len(host) > 100 || len(validation.IsDNS1123Subdomain(host)) > 0 {
		host = "hub"
	}
	return host + "-" + rand.String(6)
}

// checkReady is false as soon as the replica begins to stop.
func (f *front) checkReady(*http.Request) error {
	if f.leaving.Load() {
		return errors.New("this replica is stopping")
	}
	return nil
}

// NeedLeaderElection tells the manager that every replica serves.
func (f *front) NeedLeaderElection() bool { return false }

// Start runs until ctx ends, which leaves everything running, or something breaks.
func (f *front) Start(ctx context.Context) error {
	f.started.Store(true)
	group, life := errgroup.WithContext(f.life)
	// What the gateway still does when it stops may need the other replicas.
	following, unfollow := context.WithCancel(context.WithoutCancel(life))
	group.Go(func() error {
		defer unfollow()
		return f.serve(life)
	})
	group.Go(func() error { return f.directory.Start(following) })
	if f.membership != nil {
		group.Go(func() error { return f.membership.Start(life) })
	}
	go func() {
		f.err = group.Wait()
		close(f.ended)
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-f.ended:
		return f.err
	}
}

// serve runs the gateway, and the audit log for as long as there are requests to write down.
func (f *front) serve(ctx context.Context) error {
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	written := make(chan error, 1)
	go func() { written <- f.audit.Start(writing) }()
	err := f.gateway.Start(ctx)
	f.proxy.Close()
	stop()
	return errors.Join(err, <-written)
}

// announceEnd has load balancers and other replicas leave this one out, and waits until they do. It reports how long the rest may take.
func (f *front) announceEnd() (within time.Duration) {
	alone := f.directory.Replicas() == 1
	f.leaving.Store(true)
	f.gateway.Unready()
	f.directory.Drain()
	if alone {
		// There is nobody who could take over; the sooner the next one starts, the better.
		return 0
	}
	f.log.Info("Draining: this replica is not ready any more, and serves until load balancers know", "delay", f.delay.String(), "then", f.within.String())
	select {
	case <-time.After(f.delay):
	case <-f.ended:
	}
	return f.within
}

// letGo ends watches of machines and sessions of agents one after the other, and waits, for no longer than all of that may take, for requests
// of people.
func (f *front) letGo(within time.Duration) {
	ctx, cancel := context.WithTimeout(f.life, within)
	defer cancel()
	f.gateway.Drain(within)
	f.tunnels.Drain(ctx, within)
	f.gateway.WaitStreams(ctx)
}

// end stops what still runs. It is for after the manager has ended.
func (f *front) end() error {
	f.stop()
	if !f.started.Load() {
		return nil
	}
	<-f.ended
	return f.err
}
