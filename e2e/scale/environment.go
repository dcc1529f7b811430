package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scale/figures"
	"github.com/drover-dev/drover/e2e/scale/machines"
	"github.com/drover-dev/drover/e2e/scale/programs"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

const (
	// providerHost is where the provider serves.
	providerHost = "127.77.0.1"
	// takes is how long machines take to apply a plan.
	takes = time.Second
)

// environment is what is measured with one size: a hub, a provider, and clusters of the same number of workers with their machines.
type environment struct {
	*options
	dir string
	// workers are those of each cluster.
	workers  int
	clusters []*cluster

	hub      *hub
	provider *programs.Program
	client   client.WithWatch
	progress *machines.Progress
	log      *slog.Logger

	// ctx ends with a fault of a machine, and when the environment stops.
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	// started are the names of the machines that are played.
	mu      sync.Mutex
	started map[string]bool
}

// newEnvironment has a number of clusters.
func newEnvironment(o *options, dir string, clusters, workers int) *environment {
	e := &environment{options: o, dir: dir, workers: workers, progress: machines.NewProgress(), started: map[string]bool{}}
	for i := range clusters {
		e.clusters = append(e.clusters, &cluster{environment: e, number: i})
	}
	return e
}

var errStopped = errors.New("the run is over")

// start starts hub and provider.
func (e *environment) start(ctx context.Context) (err error) {
	e.ctx, e.cancel = context.WithCancelCause(ctx)
	if e.hub, err = startHub(e.ctx, e.options.hub, e.dir); err != nil {
		return err
	}
	if e.client, err = newClient(e.hub.config); err != nil {
		return err
	}
	if e.provider, err = startProvider(e.ctx, e.hub, e.client, e.options.provider, e.dir, providerHost); err != nil {
		return err
	}
	for _, p := range []*programs.Program{e.hub.Program, e.provider} {
		go func() {
			select {
			case <-e.ctx.Done():
			case <-p.Ended():
				e.cancel(fmt.Errorf("%s has ended: see %s", p.Name, p.Log))
			}
		}()
	}
	log, err := os.Create(filepath.Join(e.dir, "machines.log"))
	if err != nil {
		return err
	}
	context.AfterFunc(e.ctx, func() { e.running.Wait(); _ = log.Close() })
	e.log = slog.New(slog.NewTextHandler(log, nil))
	for _, c := range e.clusters {
		c.start()
	}
	return nil
}

// stop stops what was started, machines first.
func (e *environment) stop() error {
	if e.cancel == nil {
		return nil
	}
	e.cancel(errStopped)
	e.running.Wait()
	var errs []error
	if e.provider != nil {
		errs = append(errs, e.provider.Stop())
	}
	if e.hub != nil && e.hub.Program != nil {
		errs = append(errs, e.hub.Stop())
	}
	for _, c := range e.clusters {
		c.stop()
	}
	return errors.Join(errs...)
}

// run plays a machine of a cluster, once.
func (e *environment) run(c *cluster, m machines.Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started[m.Name] {
		return
	}
	e.started[m.Name] = true
	n := len(e.started)
	m.Address = fmt.Sprintf("127.79.%d.%d", n/200, 1+n%200)
	e.running.Go(func() {
		if !m.Server && e.sleep(e.bootTime()) != nil {
			return
		}
		if err := c.fleet.Run(e.ctx, m); err != nil && e.ctx.Err() == nil {
			e.cancel(err)
		}
	})
}

// bootTime is how long one machine takes to boot.
func (o *options) bootTime() time.Duration {
	return o.boot + time.Duration(rand.Float64()*bootJitter*float64(o.boot))
}

// bootJitter is how much longer some machines take to boot, as a part of the whole.
const bootJitter = 0.2

// createClusters creates the Clusters and what they refer to, and starts their servers.
func (e *environment) createClusters() error {
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, machineTemplate(e.boot),
	} {
		if err := e.client.Create(e.ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	e.running.Go(func() {
		e.follow(&corev1.SecretList{}, e.bootstrap, client.MatchingFields{"type": rkev1.BootstrapSecretType})
	})
	e.running.Go(func() { e.follow(&clusterv1.MachineList{}, e.machine) })
	creating := errgroup.Group{}
	creating.SetLimit(createdAtOnce)
	for _, c := range e.clusters {
		creating.Go(func() error {
			if err := c.create(); err != nil {
				return err
			}
			return c.startServer()
		})
	}
	return creating.Wait()
}

// createdAtOnce is how many clusters are created at the same time. Each gets its server at once: a hub that makes the workers of all first
// would have nothing to connect them to.
const createdAtOnce = 10

// settle waits until what a phase has left to do is done: Cluster API brings many Machines up to date for minutes.
func (e *environment) settle() error {
	return untilQuiet(e.ctx, quiet+quietCluster*float64(len(e.clusters)), e.hub.Used)
}

// sample measures the hub.
func (e *environment) sample() (figures.Sample, error) { return e.hub.sample(e.ctx) }
