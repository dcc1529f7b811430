package rkecontrolplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// deliver writes plan Secrets. After a write that fails, or a crash, the next election finds one init node at most; and it finds no machine
// that was given a join URL which the Secret of its server does not have: it would take that machine for the one that has the data. Only
// the init node before, which has a URL of its own, may be given the new one first.
func (r *Reconciler) deliver(ctx context.Context, s *scope) error {
	var previousInit, init, others []*machine
	for _, m := range s.machines {
		switch {
		case m.secret == nil:
		case m.state.Init:
			init = append(init, m)
		case m.secret.Labels[rkev1.InitNodeLabel] != "":
			previousInit = append(previousInit, m)
		default:
			others = append(others, m)
		}
	}
	for _, machines := range [][]*machine{previousInit, init, others} {
		if err := forEach(machines, func(m *machine) error { return r.updatePlanSecret(ctx, s, m) }); err != nil {
			return err
		}
	}
	return nil
}

// updatePlanSecret updates a plan Secret, if it changes. The update fails on a conflict with any other writer since it was read; that this
// reconciler was the other one, and the cache has not seen it yet, is no conflict: its event causes the next reconcile.
func (r *Reconciler) updatePlanSecret(ctx context.Context, s *scope, m *machine) error {
	if r.upToDate(m) || m.known != nil && m.known.updated {
		return nil
	}
	wanted := shallowCopy(m.secret)
	setOrDelete(&wanted.Labels, rkev1.InitNodeLabel, m.initLabel())
	setOrDelete(&wanted.Annotations, rkev1.JoinURLAnnotation, m.state.JoinURL)
	setOrDelete(&wanted.Annotations, rkev1.ReportedJoinAddressAnnotation, m.reportedJoinAddress())
	if m.decision.Deliver {
		if wanted.Data == nil {
			wanted.Data = map[string][]byte{}
		}
		nodeLabels, err := s.nodeLabels(m)
		if err != nil {
			return err
		}
		maxFailures, failureThreshold := render.Limits(m.inputs, m.plan)
		plans.Deliver(wanted.Data, m.encoded, maxFailures, failureThreshold)
		setOrDelete(&wanted.Annotations, rkev1.JoinedToAnnotation, m.joinURL)
		setOrDelete(&wanted.Annotations, rkev1.InfrastructureAddressesAnnotation, m.selected.Encode())
		setOrDelete(&wanted.Annotations, rkev1.PlanProbesPassedAnnotation, "")
		setOrDelete(&wanted.Annotations, rkev1.PlanReplacedAnnotation, string(m.state.Replaced()))
		setOrDelete(&wanted.Annotations, rkev1.PlanRestartsAnnotation, m.planRestarts(r.Now()))
		setOrDelete(&wanted.Annotations, rkev1.NodeLabelsAnnotation, nodeLabels)
		setOrDelete(&wanted.Annotations, rkev1.PlanLastUpdatedAnnotation, r.Now().UTC().Format(time.RFC3339))
	}
	requestDrain(m.decision, wanted)
	if err := m.recordChecksums(wanted); err != nil {
		return err
	}
	if err := r.sign(m, wanted); err != nil {
		return err
	}
	if maps.Equal(m.secret.Labels, wanted.Labels) && maps.Equal(m.secret.Annotations, wanted.Annotations) &&
		maps.EqualFunc(m.secret.Data, wanted.Data, bytes.Equal) {
		return nil
	}
	written := wanted.DeepCopy()
	if err := r.Client.Update(ctx, written, fieldOwner); err != nil {
		return fmt.Errorf("writing the plan Secret of Machine %s: %w", m.machine.Name, err)
	}
	if m.known != nil {
		m.known.updated = written.ResourceVersion != m.secret.ResourceVersion
	}
	if m.decision.Deliver {
		ctrl.LoggerFrom(ctx).Info("Delivered a plan", "Machine", m.machine.Namespace+"/"+m.machine.Name, "changes",
			plans.Diff(m.report.Delivered, m.plan).String())
	}
	return nil
}

// upToDate reports whether a plan Secret needs no change, as those of almost all machines in a reconcile. It looks at what
// updatePlanSecret would change, without a copy.
func (r *Reconciler) upToDate(m *machine) bool {
	d := m.decision
	return !d.Deliver && d.Drain == "" && !d.Uncordon && m.secret.Labels[rkev1.InitNodeLabel] == m.initLabel() &&
		m.secret.Annotations[rkev1.JoinURLAnnotation] == m.state.JoinURL &&
		m.secret.Annotations[rkev1.ReportedJoinAddressAnnotation] == m.reportedJoinAddress() &&
		len(m.savedSnapshots()) == 0 && !r.needsSignature(m, m.secret.Data)
}

// planRestarts is "true" where the machine is a server, and the plan that is delivered restarts it, or takes the place of one that does; or
// where it has restarted with an earlier one, after which its static Pods may have yet to be replaced. Empty otherwise.
func (m *machine) planRestarts(now time.Time) string {
	before := m.secret.Annotations[rkev1.PlanRestartsAnnotation] == "true"
	switch {
	case !m.state.Server():
	case m.state.Change != rollout.ChangeMinor, m.state.Replaced() != rollout.ChangeNone, before && !m.state.PodsReplaced(now):
		return "true"
	}
	return ""
}

// initLabel is the value of the label that the plan Secret of the init node has; empty for any other.
func (m *machine) initLabel() string {
	if m.state.Init {
		return "true"
	}
	return ""
}

// shallowCopy copies what may be changed of a Secret: labels, annotations, and which data it has, but not their bytes. A deep copy
// of each machine's plan would take most of the time of a reconcile that changes none.
func shallowCopy(secret *corev1.Secret) *corev1.Secret {
	out := *secret
	out.Labels, out.Annotations, out.Data = maps.Clone(secret.Labels), maps.Clone(secret.Annotations), maps.Clone(secret.Data)
	return &out
}

// requestDrain requests the drain of a Node, or its end, from the controller nodedrain.
func requestDrain(d rollout.Decision, secret *corev1.Secret) {
	switch {
	case d.Drain != "":
		setOrDelete(&secret.Annotations, rkev1.DrainOptionsAnnotation, d.Drain)
		setOrDelete(&secret.Annotations, rkev1.UncordonAnnotation, "")
	case d.Uncordon:
		setOrDelete(&secret.Annotations, rkev1.UncordonAnnotation, secret.Annotations[rkev1.DrainOptionsAnnotation])
	}
}

// nodeLabels are the labels that the plan's configuration sets on the Node, as JSON for the controller nodesync; empty for none.
func (s *scope) nodeLabels(m *machine) (string, error) {
	labels, err := render.NodeLabels(s.inputs, m.plan)
	if err != nil || len(labels) == 0 {
		return "", err
	}
	raw, err := json.Marshal(labels)
	return string(raw), err
}

// sign signs a plan that is delivered, also where the same one was before, and a delivered one whose signature is missing or outdated. A
// plan that this reconcile has not rendered is not signed: somebody else wrote it into the Secret.
func (r *Reconciler) sign(m *machine, wanted *corev1.Secret) error {
	if !r.needsSignature(m, wanted.Data) {
		return nil
	}
	return r.Signer.Sign(wanted.Data, m.secret.Data, client.ObjectKeyFromObject(m.secret).String())
}

// needsSignature reports whether the plan in data is to be signed. That the delivered one is signed is remembered for as long as the Secret
// has the same resourceVersion.
func (r *Reconciler) needsSignature(m *machine, data map[string][]byte) bool {
	switch {
	case len(m.encoded) == 0 || !bytes.Equal(data[plans.KeyPlan], m.encoded):
		return false
	case m.decision.Deliver:
		return true
	case m.outdated:
		return false // an agent that has accepted a later plan since would carry it out
	case m.known != nil && m.known.signed:
		return false
	}
	stale := r.Signer.Stale(data, client.ObjectKeyFromObject(m.secret).String())
	if m.known != nil {
		m.known.signed = !stale
	}
	return stale
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
