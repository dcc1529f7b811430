package rkecontrolplane

import (
	"context"

	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/plans"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Preview is what a reconcile of an RKEControlPlane would decide, without any effect.
type Preview struct {
	// Wait says why no plans can be rendered at all; zero if they can.
	Wait rollout.Wait
	// Problems of the specification.
	Problems render.Problems
	// Machines of the cluster that have a plan Secret and are not being deleted, by name.
	Machines []PreviewedMachine
	// Rollout has the inputs that the order of the changes depends on.
	Rollout rollout.Inputs
	// Secrets are values in plans that must not be shown.
	Secrets [][]byte
}

// PreviewedMachine is a machine with its delivered plan and the one that it would get.
type PreviewedMachine struct {
	Name, Pool        string
	Delivered, Wanted plans.Plan
	State             rollout.Machine
}

// Preview runs the phases that only decide, on an RKEControlPlane as somebody would have it. The Reconciler needs a Client, Cache and Live
// that drop writes, Settings and Now. Without a ClusterCache, the Nodes of the cluster are unknown.
func (r *Reconciler) Preview(ctx context.Context, controlPlane *rkev1.RKEControlPlane) (*Preview, error) {
	// Users may not be allowed to read management Clusters; nothing is reached by its name here.
	s := &scope{controlPlane: controlPlane.DeepCopy(), management: controlPlane.ManagementName()}
	var err error
	if s.cluster, s.refused, err = ownership.Cluster(ctx, r.Client, controlPlane); err != nil {
		return nil, err
	}
	if s.refused != nil {
		return &Preview{Wait: rollout.Wait{Reason: s.refused.Reason, Message: s.refused.Message}}, nil
	}
	err = run(ctx, s, r.findInfraCluster, r.loadMachines, r.findRelease, r.ensureTokens, r.ensureCA,
		readDeliveredAgent, r.readReferences, r.plan)
	if err != nil {
		return nil, err
	}
	if s.wait != (rollout.Wait{}) {
		return &Preview{Wait: s.wait}, nil
	}
	if len(s.machines) == 0 {
		// Problems of the specification do not depend on the machine.
		machine := render.Machine{Name: "any", Etcd: true, ControlPlane: true, Worker: true, Init: true}
		_, s.problems = render.Plan(render.Inputs{Cluster: s.inputs, Machine: machine})
	}
	out := &Preview{Problems: s.problems, Rollout: s.rolloutInputs(r.Now()), Secrets: s.secrets()}
	for _, m := range s.machines {
		if m.secret == nil || m.state.Deleting {
			continue
		}
		out.Machines = append(out.Machines, PreviewedMachine{
			Name: m.machine.Name, Pool: m.machine.Labels[rkev1.MachinePoolNameLabel], Delivered: m.report.Delivered, Wanted: m.plan, State: m.state,
		})
	}
	return out, nil
}

// secrets are the values in plans that come from Secrets.
func (s *scope) secrets() [][]byte {
	out := [][]byte{[]byte(s.tokens.Server), []byte(s.tokens.Agent), []byte(s.tokens.NewServer), []byte(s.tokens.NewAgent),
		[]byte(s.agentToken), s.inputs.CA.Server.Key, s.inputs.CA.Client.Key}
	for ref, object := range s.inputs.Objects {
		if ref.Kind == render.KindSecret {
			for _, value := range object.Data {
				out = append(out, value)
			}
		}
	}
	return out
}
