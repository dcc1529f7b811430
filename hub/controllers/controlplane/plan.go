package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinestate"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/plans"
)

// maxPlanBytes is what a plan may take of a Secret's 1 MiB. The Secret holds it twice, as wanted and as applied, and the agent's report.
const maxPlanBytes = 480 << 10

// readReferences reads what the plans are made of beside the specification.
func (r *Reconciler) readReferences(ctx context.Context, s *scope) (err error) {
	s.objects, err = r.readObjects(ctx, s)
	return err
}

// renderPlans makes the plan of every machine and compares it with the one that was delivered.
func (r *Reconciler) renderPlans(s *scope) error {
	s.problems = nil
	s.inputs = render.Cluster{
		Namespace: s.controlPlane.Namespace, Name: s.clusterName(), ManagementName: s.controlPlane.Spec.ManagementClusterName,
		Spec: s.controlPlane.Spec, Release: s.release, Settings: r.Settings, ConfigGeneration: s.controlPlane.Status.ConfigGeneration,
		Endpoint: s.endpoint().Host, Tokens: s.tokens, CA: render.CA{Server: s.serverCA.keyPair(), Client: s.clientCA.keyPair()}, Objects: s.objects,
	}
	for _, m := range s.machines {
		if m.secret == nil || m.state.Deleting {
			continue
		}
		plan, problems := render.Plan(render.Inputs{Cluster: s.inputs, Machine: m.facts, JoinURL: m.joinURL, Delivered: m.report.Delivered})
		s.problems = s.problems.Merge(problems)
		m.plan = plan
		var err error
		if m.raw, err = plan.Encode(); err != nil {
			return fmt.Errorf("encoding the plan of %s: %w", m.machine.Name, err)
		}
		m.state.Problem = m.problem()
		m.state.Change = m.change()
	}
	return nil
}

// problem says why the plan cannot be delivered; empty if it can.
func (m *machine) problem() string {
	switch {
	case m.factsErr != nil:
		return oneLine(m.factsErr.Error())
	case m.reportErr != nil:
		return "Secret " + m.secret.Name + " cannot be read: " + m.reportErr.Error()
	case m.plan.Error != "":
		return oneLine(m.plan.Error)
	case len(m.raw) > maxPlanBytes:
		return fmt.Sprintf("the plan has %d bytes, more than the %d that a Secret has room for; make machineSelectorFiles or additionalManifest smaller", len(m.raw), maxPlanBytes)
	}
	if err := m.plan.Validate(); err != nil {
		return oneLine(err.Error())
	}
	return ""
}

// oneLine joins the lines of joined errors, for messages.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// change compares the wanted plan with the delivered one.
func (m *machine) change() rollout.Change {
	delivered := m.secret.Data[plans.KeyPlan]
	if len(delivered) == 0 {
		return rollout.ChangeFirst
	}
	if bytes.Equal(delivered, m.raw) {
		return rollout.ChangeNone
	}
	return machinestate.Change(m.report.Delivered, m.plan)
}

// readObjects reads the Secrets and ConfigMaps that the cluster refers to. What does not exist is left out.
func (r *Reconciler) readObjects(ctx context.Context, s *scope) (render.Objects, error) {
	objects := render.Objects{}
	for _, ref := range render.References(s.controlPlane.Spec) {
		key := client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: ref.Name}
		var object render.Object
		var err error
		if ref.Kind == render.KindSecret {
			secret := &corev1.Secret{}
			err = r.Client.Get(ctx, key, secret)
			object = render.Object{Type: string(secret.Type), Data: secret.Data, AuthorizedFor: secret.Annotations[rkev1.AuthorizedObjectAnnotation]}
		} else {
			configMap := &corev1.ConfigMap{}
			err = r.Client.Get(ctx, key, configMap)
			object = render.Object{Data: map[string][]byte{}, AuthorizedFor: configMap.Annotations[rkev1.AuthorizedObjectAnnotation]}
			for k, v := range configMap.BinaryData {
				object.Data[k] = v
			}
			for k, v := range configMap.Data {
				object.Data[k] = []byte(v)
			}
		}
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
		}
		objects[ref] = object
	}
	return objects, nil
}
