package controlplane

import (
	"bytes"
	"fmt"
	"strings"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinestate"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/plans"
)

// maxPlanBytes is what a plan may take of a Secret's 1 MiB. The Secret holds it twice, as wanted and as applied, and the agent's report.
const maxPlanBytes = 480 << 10

// renderPlans makes the plan of every machine and compares it with the one that was delivered.
func (r *Reconciler) renderPlans(s *scope) error {
	s.problems = nil
	s.inputs = render.Cluster{
		Namespace: s.controlPlane.Namespace, Name: s.clusterName(), ManagementName: s.management,
		Spec: s.controlPlane.Spec, Release: s.release, Settings: r.Settings, ConfigGeneration: s.controlPlane.Status.ConfigGeneration,
		Endpoint: s.endpoint().Host, Tokens: s.tokens, CA: render.CA{Server: s.serverCA.keyPair(), Client: s.clientCA.keyPair()}, Objects: s.objects, PullSecrets: s.pullSecrets,
		Prime: r.prime(s.controlPlane), SnapshotMetadata: s.controlPlane.Annotations[rkev1.ClusterSpecAnnotation],
		Bootstrapped: s.bootstrapped(), BootstrapSecrets: s.bootstrapSecrets,
	}
	s.inputs.Agent = s.agent()
	for _, m := range s.machines {
		if m.secret == nil || m.state.Deleting {
			continue
		}
		m.facts.Addressed = len(m.addresses()) > 0
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
