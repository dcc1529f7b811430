package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scale/figures"
	"github.com/drover-dev/drover/e2e/scale/machines"
	"github.com/drover-dev/drover/e2e/scale/programs"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/workload"
)

const (
	// providerHost is where the provider serves, serverAddress the address of the server.
	providerHost  = "127.77.0.1"
	serverAddress = "127.78.0.1"

	// settle is how long the hub is left alone when a phase is over, so that what it still has to do counts for that phase.
	settle = 15 * time.Second
	// takes is how long machines take to apply a plan.
	takes = time.Second
)

// environment is what is measured with one size: a hub, a provider, the API of a cluster and machines.
type environment struct {
	*options
	dir  string
	size int

	hub      *hub
	provider *programs.Program
	client   client.WithWatch
	api      *workload.Cluster
	fleet    *machines.Fleet
	cluster  *provisioningv1.Cluster

	// ctx ends with a fault of a machine, and when the environment stops.
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	// started are the names of the machines that are played.
	mu      sync.Mutex
	started map[string]bool
}

var errStopped = errors.New("the run is over")

// start starts hub and provider.
func (e *environment) start(ctx context.Context) (err error) {
	e.ctx, e.cancel = context.WithCancelCause(ctx)
	e.started = map[string]bool{}
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
	e.api = workload.Start()
	e.fleet = &machines.Fleet{
		Hub: machines.Hub{URL: e.hub.url, CACerts: e.hub.caCerts}, Dir: filepath.Join(e.dir, "machines"), Progress: machines.NewProgress(),
		Nodes: &machines.Nodes{API: e.api, Version: version}, Takes: takes, Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	e.running.Go(func() { e.fleet.Nodes.Heartbeats(e.ctx) })
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
	if e.api != nil {
		e.api.Stop()
	}
	return errors.Join(errs...)
}

// run plays a machine, once.
func (e *environment) run(m machines.Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started[m.Name] {
		return
	}
	e.started[m.Name] = true
	if !m.Server {
		n := len(e.started)
		m.Address = fmt.Sprintf("127.79.%d.%d", n/200, 1+n%200)
	}
	e.running.Go(func() {
		if err := e.fleet.Run(e.ctx, m); err != nil && e.ctx.Err() == nil {
			e.cancel(err)
		}
	})
}

// createCluster creates the Cluster and what it refers to, and starts its server.
func (e *environment) createCluster() error {
	ctx := e.ctx
	kubeconfig, err := e.api.KubeconfigSecret(namespace, clusterName)
	if err != nil {
		return err
	}
	e.cluster = newCluster(e.size)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, kubeconfig,
		infrastructure("DevCluster", clusterName, false), infrastructure("DevMachineTemplate", "workers", true), e.cluster,
	} {
		if err := e.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	e.running.Go(func() {
		e.follow(&corev1.SecretList{}, e.bootstrap, client.MatchingFields{"type": rkev1.BootstrapSecretType})
	})
	e.running.Go(func() { e.follow(&clusterv1.MachineList{}, e.machine) })
	management := ""
	err = poll(ctx, "the management Cluster", func() error {
		if err := e.client.Get(ctx, client.ObjectKeyFromObject(e.cluster), e.cluster); err != nil {
			return err
		}
		management = e.cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
		return e.client.Get(ctx, client.ObjectKey{Name: management}, &corev1.Namespace{})
	})
	if err != nil {
		return err
	}
	token, err := createRegistrationToken(ctx, e.client, management)
	if err != nil {
		return err
	}
	e.run(machines.Machine{Name: serverName, Token: token, Address: serverAddress, Server: true})
	return nil
}

// sample measures the hub.
func (e *environment) sample() (figures.Sample, error) { return e.hub.sample(e.ctx) }
