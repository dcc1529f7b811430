package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/e2e/scale/figures"
	"github.com/drover-dev/drover/e2e/scale/machines"
	"github.com/drover-dev/drover/e2e/scale/programs"
)

const (
	// changed is the most agents that are given another plan at once.
	changed = 500
	// connecting is how many agents connect at the same time.
	connecting = 500
	// back is how long agents have to come back.
	back = 3 * time.Minute
)

// agents is what is measured with a number of agents: one hub with its own API server, or replicas on another one.
type agents struct {
	*options
	dir string
	n   int

	hubs       []*hub
	balancer   *loadBalancer // nil before one hub
	client     client.Client
	identities identities
	watchers   []*machines.Watcher
	progress   *machines.Progress
	refusals   machines.Refusals

	// ctx ends when the measurement does; running are the agents.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// measureAgents measures with n agents at rest, and what happens when the hub restarts, or a replica is killed.
func (o *options) measureAgents(ctx context.Context, n int) (run figures.AgentRun, err error) {
	fmt.Printf("=== %d agents\n", n)
	err = o.inDirectory(ctx, func(ctx context.Context, dir string) (err error) {
		log, err := os.Create(filepath.Join(dir, "agents.log"))
		if err != nil {
			return err
		}
		defer log.Close()
		a := &agents{options: o, dir: dir, n: n, progress: machines.NewProgress(),
			refusals: machines.NewRefusals(slog.NewTextHandler(log, nil))}
		a.ctx, a.cancel = context.WithCancel(ctx)
		defer a.cancel()
		stop, err := a.start(a.ctx)
		if err != nil {
			return err
		}
		defer func() {
			a.cancel() // agents first
			a.running.Wait()
			err = errors.Join(err, stop())
		}()
		run, err = a.measure()
		return err
	})
	return run, err
}

// start starts one hub, or replicas.
func (a *agents) start(ctx context.Context) (stop func() error, err error) {
	if a.replicas > 1 {
		return a.startReplicas(ctx)
	}
	h, err := startHub(ctx, a.hub, a.dir)
	if err != nil {
		return nil, err
	}
	a.hubs = []*hub{h}
	if a.client, err = newClient(h.config); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	a.identities = identities{client: a.client, url: h.url, caCerts: h.caCerts}
	return func() error { return h.Stop() }, nil // the program of its last start
}

func (a *agents) measure() (run figures.AgentRun, err error) {
	run.Agents, run.Replicas = a.n, max(a.replicas, 1)
	began := time.Now()
	connections, err := a.identities.create(a.ctx, a.n)
	if err != nil {
		return run, err
	}
	fmt.Printf("%8.1f s  identities created\n", time.Since(began).Seconds())
	if err := a.settle(); err != nil {
		return run, err
	}
	if _, run.Known, err = a.idle(); err != nil {
		return run, err
	}
	fmt.Printf("          %d MiB resident without agents\n", run.Known>>20)

	before, err := a.used()
	if err != nil {
		return run, err
	}
	began = time.Now()
	stop := a.hubs[0].record(a.ctx, a.profiles, fmt.Sprintf("%d-agents-connect", a.n))
	if err := a.connect(connections); err != nil {
		return run, err
	}
	if run.ConnectedAfter, err = a.progress.Await(a.ctx, given("first"), a.n, began); err != nil {
		return run, err
	}
	after, err := a.used()
	if _, recording := stop(); err != nil || recording != nil {
		return run, errors.Join(err, recording)
	}
	run.ConnectCPU = after.CPU - before.CPU
	fmt.Printf("%8.1f s  all agents connected, CPU %.1f s\n", run.ConnectedAfter.Seconds(), run.ConnectCPU.Seconds())
	if err := a.settle(); err != nil {
		return run, err
	}
	if run.RestCores, run.Resident, err = a.idle(); err != nil {
		return run, err
	}
	if _, err := a.hubs[0].profile(a.ctx, a.profiles, fmt.Sprintf("%d-agents-heap", a.n), "heap"); err != nil {
		return run, err
	}
	fmt.Printf("          %d MiB resident, %.1f KiB for each agent, %.3f cores\n", run.Resident>>20, run.ForEach()/1024, run.RestCores)

	if run.Changed, run.ChangedAfter, err = a.change("second"); err != nil {
		return run, err
	}
	fmt.Printf("%8.1f s  %d plans changed and received\n", run.ChangedAfter.Seconds(), run.Changed)
	refused := a.refusals.Count()
	if a.balancer == nil {
		err = a.restart(&run)
	} else {
		err = a.kill(&run)
	}
	if err != nil {
		return run, err
	}
	run.Refused = a.refusals.Count() - refused
	fmt.Printf("%8.1f s  all agents back, refused %d times (429); %d plans changed then were received within %.1f s\n",
		run.BackAfter.Seconds(), run.Refused, run.Changed, run.ChangedBackAfter.Seconds())
	return run, nil
}

// given is the stage of a plan of a version.
func given(version string) string { return "given the " + version + " plan" }

// connect starts all agents, as fast as they get their plans: more at once than connecting would only wait for the processor until their
// TLS handshakes take too long, and begin again.
func (a *agents) connect(connections map[string]config.Connection) error {
	log := slog.New(a.refusals)
	for _, name := range slices.Sorted(maps.Keys(connections)) {
		w, err := machines.NewWatcher(name, filepath.Join(a.dir, "agents"), connections[name], log)
		if err != nil {
			return err
		}
		a.watchers = append(a.watchers, w)
	}
	free := make(chan struct{}, connecting)
	for _, w := range a.watchers {
		select {
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		case free <- struct{}{}:
		}
		done := sync.OnceFunc(func() { <-free })
		a.running.Go(func() {
			w.Run(a.ctx, func(plan []byte) {
				a.progress.Reach(given(planVersion(plan)), w.Name)
				done()
			})
		})
	}
	return nil
}

// change gives some agents, spread over all, another plan, and waits until each has received it.
func (a *agents) change(version string) (count int, after time.Duration, err error) {
	began := time.Now()
	if count, err = a.identities.deliver(a.ctx, a.n, max(a.n/changed, 1), version); err != nil {
		return count, 0, fmt.Errorf("changing plans: %w", err)
	}
	ctx, cancel := context.WithTimeout(a.ctx, back)
	defer cancel()
	after, err = a.progress.Await(ctx, given(version), count, began)
	return count, after, err
}

// used is what all hubs use together.
func (a *agents) used() (programs.Used, error) {
	var all programs.Used
	for _, h := range a.hubs {
		used, err := h.Used()
		if err != nil {
			return all, err
		}
		all.CPU, all.Resident = all.CPU+used.CPU, all.Resident+used.Resident
	}
	return all, nil
}

// settle waits until the hubs use little of a processor for a while: after the agents have connected, the API server writes for each token
// that it was used.
func (a *agents) settle() error { return untilQuiet(a.ctx, quiet, a.used) }

// idle leaves everything alone for a while, and returns the processors in use meanwhile and the resident memory at the end.
func (a *agents) idle() (cores float64, resident int64, err error) {
	from, err := a.used()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	select {
	case <-a.ctx.Done():
		return 0, 0, context.Cause(a.ctx)
	case <-time.After(a.rest):
	}
	to, err := a.used()
	return (to.CPU - from.CPU).Seconds() / time.Since(began).Seconds(), to.Resident, err
}
