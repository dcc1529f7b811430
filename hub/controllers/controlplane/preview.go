package controlplane

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/plans"
)

// Preview is what a pass over an RKEControlPlane would find, before it has written anything.
type Preview struct {
	// Wait says why no plans can be made at all; zero if they can.
	Wait rollout.Wait
	// Problems are what is wrong with the specification.
	Problems render.Problems
	// Machines are those of the cluster that have plans and stay, by name.
	Machines []PreviewedMachine
	// Rollout is what the order of the changes is decided on.
	Rollout rollout.Inputs
	// Secrets are values that plans hold and that nobody is to be shown.
	Secrets [][]byte
}

// PreviewedMachine is a machine with the plan that it has and the one that it would be given.
type PreviewedMachine struct {
	Name, Pool        string
	Delivered, Wanted plans.Plan
	State             rollout.Machine
}

// Preview runs the phases of a pass that only find out, on an RKEControlPlane as somebody would have it, and writes nothing. edit changes the
// other objects that are read in the same way; it may be nil. The Reconciler needs a client and the hub's settings. Of the cluster's own
// Nodes it knows nothing.
func (r *Reconciler) Preview(ctx context.Context, controlPlane *rkev1.RKEControlPlane, edit func(client.Object)) (*Preview, error) {
	c := &onlooker{Client: r.Client, edit: edit}
	pass := &Reconciler{Client: c, Cache: c, Live: c, Settings: r.Settings, Releases: r.Releases, Now: r.Now}
	// Whoever asks may not be allowed to read management Clusters; of its name alone, nothing is opened here.
	s := &scope{controlPlane: controlPlane.DeepCopy(), management: controlPlane.ManagementName()}
	var err error
	if s.cluster, s.refused, err = ownership.Cluster(ctx, c, controlPlane); err != nil {
		return nil, err
	}
	if s.refused != nil {
		return &Preview{Wait: rollout.Wait{Reason: s.refused.Reason, Message: s.refused.Message}}, nil
	}
	for _, run := range []phase{pass.findInfraCluster, pass.loadMachines, pass.findRelease, pass.ensureTokens, pass.ensureCA, readDeliveredAgent, pass.readReferences, pass.plan} {
		if err := run(ctx, s); err != nil {
			return nil, err
		}
		if s.wait != (rollout.Wait{}) {
			return &Preview{Wait: s.wait}, nil
		}
	}
	return s.preview(r.Now()), nil
}

func (s *scope) preview(now time.Time) *Preview {
	if len(s.machines) == 0 {
		// What is wrong with the specification can be said before there is anybody to render it for.
		anybody := render.Machine{Name: "any", Etcd: true, ControlPlane: true, Worker: true, Init: true}
		_, s.problems = render.Plan(render.Inputs{Cluster: s.inputs, Machine: anybody})
	}
	out := &Preview{Problems: s.problems, Rollout: s.rolloutInputs(now), Secrets: s.secrets()}
	for _, m := range s.machines {
		if m.secret == nil || m.state.Deleting {
			continue
		}
		out.Machines = append(out.Machines, PreviewedMachine{
			Name: m.machine.Name, Pool: m.machine.Labels[rkev1.MachinePoolNameLabel], Delivered: m.report.Delivered, Wanted: m.plan, State: m.state,
		})
	}
	return out
}

// secrets are the values of everything that comes from a Secret.
func (s *scope) secrets() [][]byte {
	out := [][]byte{[]byte(s.tokens.Server), []byte(s.tokens.Agent), s.inputs.CA.Server.Key, s.inputs.CA.Client.Key, []byte(s.agentToken)}
	for ref, object := range s.inputs.Objects {
		if ref.Kind == render.KindSecret {
			for _, value := range object.Data {
				out = append(out, value)
			}
		}
	}
	return out
}

// onlooker reads, and drops what is written.
type onlooker struct {
	client.Client
	edit func(client.Object)
}

// Get implements client.Reader.
func (o *onlooker) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := o.Client.Get(ctx, key, into, opts...)
	if err == nil && o.edit != nil {
		o.edit(into)
	}
	return err
}

// List implements client.Reader.
func (o *onlooker) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if err := o.Client.List(ctx, into, opts...); err != nil || o.edit == nil {
		return err
	}
	return meta.EachListItem(into, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			o.edit(object)
		}
		return nil
	})
}

// Create implements client.Writer.
func (o *onlooker) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

// Update implements client.Writer.
func (o *onlooker) Update(context.Context, client.Object, ...client.UpdateOption) error { return nil }

// Patch implements client.Writer.
func (o *onlooker) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

// Apply implements client.Writer.
func (o *onlooker) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

// Delete implements client.Writer.
func (o *onlooker) Delete(context.Context, client.Object, ...client.DeleteOption) error { return nil }
