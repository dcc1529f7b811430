package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/plans"
)

// rolloutInputs are what rollout decides on.
func (s *scope) rolloutInputs(now time.Time) rollout.Inputs {
	strategy := s.controlPlane.Spec.UpgradeStrategy
	in := rollout.Inputs{
		Now: now, Machines: s.states(), Strangers: s.strangers, Bootstrapped: s.bootstrapped(),
		ControlPlaneConcurrency: string(strategy.ControlPlaneConcurrency), WorkerConcurrency: string(strategy.WorkerConcurrency),
		ControlPlaneDrain: drainOptions(strategy.ControlPlaneDrainOptions), WorkerDrain: drainOptions(strategy.WorkerDrainOptions),
	}
	if s.election.Init == "" {
		in.Blocked = rollout.Wait{Reason: s.election.Reason, Message: s.election.Message}
	}
	return in
}

// decide asks rollout.
func (s *scope) decide(now time.Time) {
	outcome := rollout.Decide(s.rolloutInputs(now))
	s.outcome = &outcome
	// Both are in the order of the machines' names.
	for i, m := range s.machines {
		m.decision = outcome.Decisions[i]
	}
}

// deliver writes plans and marks. A mark is taken away before it is given to another.
func (r *Reconciler) deliver(ctx context.Context, s *scope) error {
	for _, marked := range []bool{false, true} {
		var errs []error
		for _, m := range s.machines {
			if m.state.Init == marked && m.secret != nil {
				errs = append(errs, r.write(ctx, s, m))
			}
		}
		if err := kerrors.NewAggregate(errs); err != nil {
			return err
		}
	}
	return nil
}

// write brings a plan Secret up to date, if it is not. The write fails if anybody has written the Secret since it was read.
func (r *Reconciler) write(ctx context.Context, s *scope, m *machine) error {
	wanted := m.secret.DeepCopy()
	setOrDelete(&wanted.Labels, rkev1.InitNodeLabel, flag(m.state.Init))
	setOrDelete(&wanted.Annotations, rkev1.JoinURLAnnotation, m.state.JoinURL)
	if m.decision.Deliver {
		if wanted.Data == nil {
			wanted.Data = map[string][]byte{}
		}
		nodeLabels, err := s.nodeLabels(m)
		if err != nil {
			return err
		}
		plans.Deliver(wanted.Data, m.raw, plans.Unlimited, m.facts.FailureThreshold())
		setOrDelete(&wanted.Annotations, rkev1.JoinedToAnnotation, m.joinURL)
		setOrDelete(&wanted.Annotations, rkev1.InfrastructureAddressesAnnotation, m.settled.encode())
		setOrDelete(&wanted.Annotations, rkev1.PlanProbesPassedAnnotation, "")
		setOrDelete(&wanted.Annotations, rkev1.NodeLabelsAnnotation, nodeLabels)
		setOrDelete(&wanted.Annotations, rkev1.PlanLastUpdatedAnnotation, r.Now().UTC().Format(time.RFC3339))
	}
	askForDrain(m.decision, wanted)
	if err := r.sign(m, wanted); err != nil {
		return err
	}
	if same(m.secret, wanted) {
		return nil
	}
	if err := r.Client.Update(ctx, wanted, fieldOwner); err != nil {
		return fmt.Errorf("writing the plan Secret of Machine %s: %w", m.machine.Name, err)
	}
	if m.decision.Deliver {
		ctrl.LoggerFrom(ctx).Info("Delivered a plan", "Machine", m.machine.Namespace+"/"+m.machine.Name, "changes", plans.Diff(m.report.Delivered, m.plan).String())
	}
	return nil
}

// nodeLabels are the labels that the plan's configuration gives to the Node, as controllers/nodesync reads them; empty for none.
func (s *scope) nodeLabels(m *machine) (string, error) {
	labels, err := render.NodeLabels(s.inputs, m.plan)
	if err != nil || len(labels) == 0 {
		return "", err
	}
	raw, err := json.Marshal(labels)
	return string(raw), err
}

// sign signs a plan that is delivered, also where the same one was before, and a delivered one whose signature is no longer good. Only
// what this pass has rendered is signed: a plan that somebody else wrote into the Secret stays without.
func (r *Reconciler) sign(m *machine, wanted *corev1.Secret) error {
	name := wanted.Namespace + "/" + wanted.Name
	if len(m.raw) == 0 || !bytes.Equal(wanted.Data[plans.KeyPlan], m.raw) || !m.decision.Deliver && !r.Signer.Stale(wanted.Data, name) {
		return nil
	}
	return r.Signer.Sign(wanted.Data, m.secret.Data, name)
}

func same(a, b *corev1.Secret) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && reflect.DeepEqual(a.Data, b.Data)
}

func flag(on bool) string {
	if on {
		return "true"
	}
	return ""
}

// setOrDelete sets a key, or removes it for an empty value.
func setOrDelete(in *map[string]string, key, value string) {
	if value == "" {
		delete(*in, key)
		return
	}
	if *in == nil {
		*in = map[string]string{}
	}
	(*in)[key] = value
}
