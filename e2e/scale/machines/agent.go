// Package machines plays machines towards a hub: each registers, watches its plan and reports as the agent does, with the agent's own
// client, and gets a Node once it has applied a plan. Nothing is run, and no file of a plan is written.
package machines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/agent/source/remote"
	"github.com/drover-dev/drover/plans"
)

// The stages of a machine's progress.
const (
	Registered = "registered"
	Applied    = "configured"
)

// Delivered is the stage of a plan with a label of the Node, Changed that of the same plan applied.
func Delivered(label string) string { return "given the label " + label }

// Changed is the stage of a plan with a label of the Node that was applied.
func Changed(label string) string { return "changed by the label " + label }

// Runs is the stage of a machine whose Node has a version.
func Runs(version string) string { return "runs " + version }

// Fleet is what all machines have in common.
type Fleet struct {
	// Hub is the hub they belong to.
	Hub Hub
	// Dir is where each has a folder of its own.
	Dir string
	// Nodes is the API of the cluster.
	Nodes *Nodes
	// Progress is told what machines have reached.
	Progress *Progress
	// Takes is how long a machine takes to apply a plan, and then again until its probes pass for the first time.
	Takes time.Duration
	// Log gets the warnings of the agents' client.
	Log *slog.Logger
}

// Run plays a machine until ctx is done.
func (f *Fleet) Run(ctx context.Context, m Machine) error {
	connection, err := f.Hub.register(ctx, m)
	if err != nil {
		return fmt.Errorf("registering %s: %w", m.Name, err)
	}
	f.Progress.Reach(Registered, m.Name)
	hub, err := connect(filepath.Join(f.Dir, m.Name), connection, f.Log.With("machine", m.Name))
	if err != nil {
		return fmt.Errorf("connecting %s: %w", m.Name, err)
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		hub.Run(ctx)
	}()
	defer func() { <-watching }()
	return (&agent{Fleet: f, Machine: m, hub: hub}).run(ctx)
}

// agent is the agent of a machine that has registered.
type agent struct {
	*Fleet
	Machine
	hub *remote.Source
	// probed is set when the probes of the machine have passed once.
	probed bool
}

func (a *agent) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case snapshot := <-a.hub.Updates():
			if snapshot.Status.State != plans.StatePending || len(snapshot.Delivery.Plan) == 0 {
				continue
			}
			if err := a.apply(ctx, snapshot); err != nil && !errors.Is(err, source.ErrSuperseded) && ctx.Err() == nil {
				return fmt.Errorf("applying the plan of %s: %w", a.Name, err)
			}
		}
	}
}

// apply reports what an agent reports that applies a plan: that it has begun, the outcome, and that all probes pass. Those of a machine
// that has just been set up fail at first.
func (a *agent) apply(ctx context.Context, s source.Snapshot) error {
	node, plan, err := readPlan(s.Delivery.Plan)
	if err != nil {
		return err
	}
	for key, value := range node.Labels {
		a.Progress.Reach(Delivered(key+"="+value), a.Name)
	}
	began := time.Now()
	if err := a.report(ctx, s, func(status *plans.Status) {
		status.State, status.Revision = plans.StateInProgress, status.Revision+1
	}); err != nil {
		return err
	}
	if err := retry.Sleep(ctx, a.Takes); err != nil {
		return err
	}
	if err := a.report(ctx, s, func(status *plans.Status) {
		status.State, status.AppliedChecksum, status.FailedChecksum = plans.StateSucceeded, s.Delivery.Checksum(), ""
		status.FailureCount, status.SuccessCount, status.LastApplyTime = 0, status.SuccessCount+1, began.UTC().Truncate(time.Second)
		status.ProbeStatuses = probes(plan, a.probed)
	}); err != nil {
		return err
	}
	a.Nodes.Set(a.Machine, node)
	a.Progress.Reach(Runs(node.Version), a.Name)
	if !a.probed {
		if err := retry.Sleep(ctx, a.Takes); err != nil {
			return err
		}
		a.probed = true
		if err := a.report(ctx, s, func(status *plans.Status) { status.ProbeStatuses = probes(plan, true) }); err != nil {
			return err
		}
	}
	a.Progress.Reach(Applied, a.Name)
	for key, value := range node.Labels {
		a.Progress.Reach(Changed(key+"="+value), a.Name)
	}
	return nil
}

func probes(plan plans.Plan, healthy bool) map[string]plans.ProbeStatus {
	statuses := map[string]plans.ProbeStatus{}
	for name := range plan.Probes {
		statuses[name] = plans.ProbeStatus{Healthy: healthy}
	}
	return statuses
}

const (
	reportDelay    = time.Second
	maxReportDelay = 20 * time.Second
)

// report writes a report, and tries again for as long as the hub cannot be reached.
func (a *agent) report(ctx context.Context, s source.Snapshot, change func(*plans.Status)) error {
	for failures := 1; ; failures++ {
		_, err := a.hub.Update(ctx, s.UID, s.Delivery.Checksum(), change)
		if err == nil || errors.Is(err, source.ErrSuperseded) || errors.Is(err, source.ErrTooLarge) {
			return err
		}
		a.Log.Warn("Reporting failed", "machine", a.Name, "error", err)
		if err := retry.Sleep(ctx, retry.Delay(failures, reportDelay, maxReportDelay)); err != nil {
			return err
		}
	}
}
