package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scale/figures"
	"github.com/drover-dev/drover/e2e/scale/machines"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// label is what the change of the configuration gives all Nodes: no machine restarts for it.
const label = "scale.test/change=1"

// measure goes through all phases.
func (e *environment) measure(ctx context.Context) (run figures.Run, err error) {
	run.Machines = e.size
	if err := e.start(ctx); err != nil {
		return run, err
	}
	run.Started = e.hub.started
	for _, phase := range []struct {
		name string
		into *figures.Phase
		do   func() ([]figures.Milestone, error)
	}{
		{"idle", &run.Idle, e.idle},
		{"provision", &run.Provision, e.provision},
		{"change", &run.Change, e.change},
		{"rest", &run.Rest, e.idle},
	} {
		before, err := e.sample()
		if err != nil {
			return run, err
		}
		stop := e.hub.record(e.ctx, e.profiles, fmt.Sprintf("%d-%s", e.size, phase.name))
		reached, err := phase.do()
		stop()
		if err != nil {
			return run, fmt.Errorf("%s: %w", phase.name, err)
		}
		after, err := e.sample()
		if err != nil {
			return run, err
		}
		*phase.into = figures.NewPhase(before, after)
		if phase.into.Writers, err = e.hub.writers(before.Time, after.Time); err != nil {
			return run, err
		}
		run.Milestones = append(run.Milestones, reached...)
		fmt.Print(phase.into.Describe(phase.name, reached))
	}
	return run, e.hub.profile(e.ctx, e.profiles, fmt.Sprintf("%d-heap", e.size), "heap")
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

// provision creates the Cluster and waits until it is ready.
func (e *environment) provision() ([]figures.Milestone, error) {
	began := time.Now()
	if err := e.createCluster(); err != nil {
		return nil, err
	}
	all := e.size + 1
	reached, err := e.await(began, []stage{
		{"Machines created", created, all}, {"bootstrap data", bootstrapped, e.size}, {"machines registered", machines.Registered, all},
		{"first plans applied", machines.Applied, all}, {"Machines ready", ready, all},
	})
	if err != nil {
		return nil, err
	}
	if err := e.awaitReady(); err != nil {
		return nil, err
	}
	reached = append(reached, figures.Milestone{Name: "Cluster ready", After: time.Since(began)})
	return reached, e.sleep(settle)
}

// change changes the configuration of all machines and waits until they have applied it.
func (e *environment) change() ([]figures.Milestone, error) {
	before := e.cluster.DeepCopy()
	e.cluster.Spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{"node-label": []any{label}}
	began := time.Now()
	if err := e.client.Patch(e.ctx, e.cluster, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("changing the Cluster: %w", err)
	}
	all := e.size + 1
	reached, err := e.await(began, []stage{
		{"change delivered", machines.Delivered(label), all}, {"change applied", machines.Changed(label), all},
	})
	if err != nil {
		return nil, err
	}
	return reached, e.sleep(settle)
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
		after, err := e.fleet.Progress.Await(e.ctx, s.name, s.machines, began)
		if err != nil {
			return nil, err
		}
		reached = append(reached, figures.Milestone{Name: s.milestone, After: after})
	}
	return reached, nil
}

// awaitReady waits until the Cluster is ready.
func (e *environment) awaitReady() error {
	return poll(e.ctx, "the Cluster to be ready", func() error {
		if err := e.client.Get(e.ctx, client.ObjectKeyFromObject(e.cluster), e.cluster); err != nil {
			return err
		}
		c := meta.FindStatusCondition(e.cluster.GetConditions(), provisioningv1.ReadyCondition)
		if c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}
