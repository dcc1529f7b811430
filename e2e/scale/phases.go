package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/e2e/scale/figures"
	"github.com/drover-dev/drover/e2e/scale/machines"
)

// label is what the change of the configuration gives all Nodes: no machine restarts for it.
const label = "scale.test/change=1"

// measure goes through all phases.
func (e *environment) measure(ctx context.Context) (run figures.Run, err error) {
	run.Clusters, run.Machines = len(e.clusters), len(e.clusters)*e.workers
	if err := e.start(ctx); err != nil {
		return run, err
	}
	run.Started = e.hub.started
	if err := e.settle(); err != nil { // what a start leaves to do is no rest
		return run, err
	}
	for _, phase := range e.phases(&run) {
		before, err := e.sample()
		if err != nil {
			return run, err
		}
		stop := e.hub.record(e.ctx, e.profiles, fmt.Sprintf("%d-%s", run.Machines, phase.name))
		reached, err := phase.do()
		samples, recording := stop()
		if err = errors.Join(err, recording); err != nil {
			return run, fmt.Errorf("%s: %w", phase.name, err)
		}
		after, err := e.sample()
		if err != nil {
			return run, err
		}
		*phase.into = figures.NewPhase(before, after)
		phase.into.Samples = samples
		if phase.into.Writers, err = e.hub.writers(before.Time, after.Time); err != nil {
			return run, err
		}
		run.Milestones = append(run.Milestones, reached...)
		fmt.Print(phase.into.Describe(phase.name, reached))
		if e.profiles == "" {
			continue
		}
		if _, err := e.hub.profile(e.ctx, e.profiles, fmt.Sprintf("%d-%s-heap", run.Machines, phase.name), "heap?gc=1"); err != nil {
			return run, err
		}
	}
	return run, nil
}

// phase is a part of a run.
type phase struct {
	name string
	into *figures.Phase
	do   func() ([]figures.Milestone, error)
}

// phases are those of a run, in order.
func (e *environment) phases(run *figures.Run) []phase {
	idle, rest := phase{"idle", &run.Idle, e.idle}, phase{"rest", &run.Rest, e.idle}
	if e.clusterAPIOnly {
		return []phase{idle, {"servers", &figures.Phase{}, e.provisionServers}, {"provision", &run.Provision, e.deploy}, rest}
	}
	phases := []phase{idle, {"provision", &run.Provision, e.provision}, {"change", &run.Change, e.change}}
	if e.upgrades {
		phases = append(phases, phase{"upgrade", &run.Upgrade, e.upgrade})
	}
	return append(phases, rest)
}

// idle waits.
func (e *environment) idle() ([]figures.Milestone, error) { return nil, e.sleep(e.rest) }

func (e *environment) sleep(d time.Duration) error {
	select {
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	case <-time.After(d):
		return nil
	}
}

// provision creates the Clusters and waits until they are ready.
func (e *environment) provision() ([]figures.Milestone, error) {
	began := time.Now()
	if err := e.createClusters(); err != nil {
		return nil, err
	}
	workers := len(e.clusters) * e.workers
	all := workers + len(e.clusters)
	reached, err := e.await(began, []stage{
		{"Machines created", created, all}, {"bootstrap data", bootstrapped, workers}, {"machines registered", machines.Registered, all},
		{"first plans applied", machines.Applied, all}, {"Machines ready", ready, all},
	})
	if err != nil {
		return nil, err
	}
	if err := e.awaitClusters(); err != nil {
		return nil, err
	}
	reached = append(reached, figures.Milestone{Name: "Clusters ready", After: time.Since(began)})
	return reached, e.settle()
}

func (e *environment) awaitClusters() error {
	for _, c := range e.clusters {
		if err := c.awaitReady(); err != nil {
			return err
		}
	}
	return nil
}

// change changes the configuration of all machines and waits until they have applied it.
func (e *environment) change() ([]figures.Milestone, error) {
	began := time.Now()
	for _, c := range e.clusters {
		if err := c.label(); err != nil {
			return nil, err
		}
	}
	all := len(e.clusters) * (e.workers + 1)
	reached, err := e.await(began, []stage{
		{"change delivered", machines.Delivered(label), all}, {"change applied", machines.Changed(label), all},
	})
	if err != nil {
		return nil, err
	}
	return reached, e.settle()
}

// upgrade upgrades all machines, and waits until the Clusters are ready again.
func (e *environment) upgrade() ([]figures.Milestone, error) {
	began := time.Now()
	for _, c := range e.clusters {
		if err := c.upgrade(); err != nil {
			return nil, err
		}
	}
	reached, err := e.await(began, []stage{{"all upgraded", machines.Runs(nextVersion), len(e.clusters) * (e.workers + 1)}})
	if err != nil {
		return nil, err
	}
	return reached, e.settle()
}

// stage is what a number of machines have to reach.
type stage struct {
	milestone, name string
	machines        int
}

// await waits for all stages, and returns when each was reached.
func (e *environment) await(began time.Time, stages []stage) ([]figures.Milestone, error) {
	var reached []figures.Milestone
	for _, s := range stages {
		after, err := e.progress.Await(e.ctx, s.name, s.machines, began)
		if err != nil {
			return nil, err
		}
		reached = append(reached, figures.Milestone{Name: s.milestone, After: after})
	}
	return reached, nil
}
