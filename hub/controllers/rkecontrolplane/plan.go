package rkecontrolplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// maxPlanBytes limits a plan. A Secret may have 1 MiB, and holds the plan twice (wanted and applied) beside the agent's report.
const maxPlanBytes = 480 << 10

// plan elects the init node, renders the plans, and asks rollout. A decision that must not be made on outdated objects is made again on
// live ones: the caches may not have seen what an earlier reconcile, or another hub process, has written.
func (r *Reconciler) plan(ctx context.Context, s *scope) error {
	if err := r.planOnce(ctx, s); err != nil || s.live || !s.needsLive() {
		return err
	}
	err := r.checkOperation(ctx, s)
	if err == nil {
		err = r.planLive(ctx, s)
	}
	if err != nil {
		s.outcome = nil // it was made on what is not certain
	}
	return err
}

func (r *Reconciler) planOnce(ctx context.Context, s *scope) error {
	r.readNodes(ctx, s)
	s.checkRestored(r.Signer.Restored())
	if err := r.planOperation(ctx, s); err != nil {
		return err
	}
	in := s.rolloutInputs(r.Now())
	outcome := rollout.Decide(in)
	s.outcome = &outcome
	if !outcome.Done {
		s.requeue(rollout.Expires(in.Machines, in.Now))
	}
	// Both are in the order of the machines' names.
	for i, m := range s.machines {
		m.decision = outcome.Decisions[i]
		m.outdated = s.outdated != (rollout.Wait{}) && m.state.Progress != rollout.ProgressApplied
	}
	return nil
}

// planOperation elects, renders and decides about the operation. A restore that begins to stop machines designates another init node, with
// which plans are rendered again: the same is decided of the operation then.
func (r *Reconciler) planOperation(ctx context.Context, s *scope) error {
	designated := operation.RestoreTarget(s.operation)
	for range 2 {
		s.electInitNode(designated)
		s.findJoinURLs(r.Now())
		if err := r.renderPlans(s); err != nil {
			return err
		}
		if err := r.decideOperation(ctx, s); err != nil {
			return err
		}
		decided := operation.RestoreTarget(s.operation)
		if decided == "" || decided == designated {
			break
		}
		designated = decided
	}
	return nil
}

// needsLive reports a decision that does harm if it is made twice: two init nodes start two clusters, two etcd members that restart or
// join at the same time may cost etcd its quorum, and a task of a step that an operation has behind it may undo what came after.
func (s *scope) needsLive() bool {
	return slices.ContainsFunc(s.machines, func(m *machine) bool {
		marked := m.secret != nil && m.secret.Labels[rkev1.InitNodeLabel] == "true"
		return m.state.Init && !marked ||
			m.decision.Deliver && (m.state.Task || m.state.Etcd && m.state.Change != rollout.ChangeMinor)
	})
}

// electInitNode decides which machine starts the cluster: the designated one, unless that is empty. Its label is written with its plan, or
// at once where the cluster exists.
func (s *scope) electInitNode(designated string) {
	s.election = rollout.Election{Init: designated}
	if designated == "" {
		s.election = rollout.Elect(s.states(), s.controlPlane.Labels[rkev1.InitNodeMachineIDLabel], s.bootstrapped())
	}
	for _, m := range s.machines {
		m.state.Init = m.machine.Name == s.election.Init
		m.inputs.Init = m.state.Init
	}
}

// states are those of the machines. The next call overwrites them.
func (s *scope) states() []rollout.Machine {
	s.allStates = slices.Grow(s.allStates[:0], len(s.machines))
	for _, m := range s.machines {
		s.allStates = append(s.allStates, m.state)
	}
	return s.allStates
}

// findJoinURLs sets where each server can be joined, and then where each machine joins.
func (s *scope) findJoinURLs(now time.Time) {
	common := render.Cluster{Spec: s.controlPlane.Spec, Release: s.release}
	for _, m := range s.machines {
		if m.state.Server() && m.secret != nil && m.secret.Annotations[rkev1.JoinURLAutosetDisabledAnnotation] != "true" {
			next := joinURL(common, m)
			// A restore starts the others anyway, and they go on trying the address that they were given.
			if wait := m.untilMoved(next, now); wait > 0 && !operation.Exclusive(s.operation) {
				s.requeue(wait)
			} else {
				m.state.JoinURL = next
			}
		}
	}
	servers := slices.DeleteFunc(s.states(), func(m rollout.Machine) bool { return !m.Server() })
	for _, m := range s.machines {
		m.joinURL = rollout.JoinURL(servers, m.state, string(m.machine.UID))
	}
}

// joinURL keeps the URL that others have joined while the machine has its address, so that another address of the machine restarts nothing.
// It is empty for a machine that others cannot join yet.
func joinURL(c render.Cluster, m *machine) string {
	addresses := m.addresses()
	if captured := render.CapturedAddress(m.report.Status.PeriodicOutput); len(addresses) == 0 && captured != "" {
		addresses = []string{captured}
	}
	if len(addresses) == 0 {
		return m.state.JoinURL
	}
	if m.state.JoinURL == "" && !m.state.Joinable() {
		return ""
	}
	if u, err := url.Parse(m.state.JoinURL); err == nil && m.keepsJoinAddress(u.Hostname(), addresses) {
		return render.JoinURL(c, u.Hostname())
	}
	return render.JoinURL(c, addresses[0])
}

// keepsJoinAddress reports whether others go on joining the machine at an address. One that its Node or infrastructure has reported is kept
// while neither reports any, and given up once they report others only: the detected address stays that of the registration.
func (m *machine) keepsJoinAddress(address string, addresses []string) bool {
	if reported := m.secret.Annotations[rkev1.ReportedJoinAddressAnnotation]; reported == "" || reported != address {
		return slices.Contains(addresses, address)
	}
	return m.reported.Empty() && len(m.inputs.InternalAddresses) == 0 || slices.Contains(m.knownAddresses(), address)
}

// moveTime is how long the address of a join URL is not reported before the URL moves to another one.
const moveTime = 2 * time.Minute

// untilMoved is for how long others go on joining the machine at its present URL instead of the next one, since its address is not reported
// any more: a Node or infrastructure may report a part of the addresses at times, and each move restarts all machines that join there. Zero
// where the address stays, was never reported, or is corrected by a user.
func (m *machine) untilMoved(next string, now time.Time) time.Duration {
	present := hostOf(m.secret.Annotations[rkev1.JoinURLAnnotation])
	if present == "" || present == hostOf(next) || present != m.secret.Annotations[rkev1.ReportedJoinAddressAnnotation] ||
		m.bootstrap.Annotations[rkev1.InternalAddressAnnotation] != "" {
		m.known.movesSince = time.Time{}
		return 0
	}
	if m.known.movesSince.IsZero() {
		m.known.movesSince = now
	}
	return max(0, m.known.movesSince.Add(moveTime).Sub(now))
}

// hostOf is the host of a URL; empty where it has none.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// reportedJoinAddress is the value of the annotation with the address of the join URL: what it was before until that address is reported.
func (m *machine) reportedJoinAddress() string {
	if m.state.JoinURL != "" {
		if u, err := url.Parse(m.state.JoinURL); err == nil && slices.Contains(m.knownAddresses(), u.Hostname()) {
			return u.Hostname()
		}
	}
	return m.secret.Annotations[rkev1.ReportedJoinAddressAnnotation]
}

// renderPlans renders the plan of every machine and compares it with the delivered one.
func (r *Reconciler) renderPlans(s *scope) error {
	s.problems = nil
	s.inputs = render.Cluster{
		Namespace: s.controlPlane.Namespace, Name: s.clusterName(), ManagementName: s.management,
		Spec: s.controlPlane.Spec, Release: s.release, Settings: r.Settings, ConfigGeneration: s.configGeneration(),
		Endpoint: s.endpoint().Host, Tokens: s.tokens, CA: render.CA{Server: s.serverCA.keyPair(), Client: s.clientCA.keyPair()},
		Objects: s.objects, PullSecrets: s.pullSecrets, BootstrapSecrets: s.bootstrapSecrets, Bootstrapped: s.bootstrapped(),
		Prime: r.prime(s.controlPlane), SnapshotMetadata: s.controlPlane.Annotations[rkev1.ClusterSpecAnnotation],
	}
	s.inputs.Agent = s.agent()
	s.plans.setInputs(s.inputs)
	for _, m := range s.machines {
		if m.secret == nil || m.state.Deleting {
			continue
		}
		m.inputs.Addressed = len(m.addresses()) > 0
		if err := m.known.render(s.inputs, &m.inputs, m.joinURL, m.secret.Data[plans.KeyPlan]); err != nil {
			return err
		}
		s.problems = s.problems.Merge(m.known.problems)
		m.plan, m.encoded, m.invalid = m.known.plan, m.known.encoded, m.known.invalid
		m.state.Problem, m.state.Change = m.problem(), m.change()
	}
	s.problems = s.problems.Merge(s.goesBack()).Merge(s.skipsMinor()).Merge(s.ignoresNetwork()).Merge(s.awaitsTopology()).
		Merge(s.unansweredHooks())
	s.unrendered = false
	return nil
}

// configGeneration is that of the status, which the annotation follows, or that of the annotation where the status was lost.
func (s *scope) configGeneration() int64 {
	status := &s.controlPlane.Status
	if status.ConfigGeneration == 0 {
		if kept, err := strconv.ParseInt(s.controlPlane.Annotations[rkev1.ConfigGenerationAnnotation], 10, 64); err == nil {
			status.ConfigGeneration = kept
		}
		return status.ConfigGeneration
	}
	metav1.SetMetaDataAnnotation(&s.controlPlane.ObjectMeta, rkev1.ConfigGenerationAnnotation, strconv.FormatInt(status.ConfigGeneration, 10))
	return status.ConfigGeneration
}

// problem says in one line why the plan cannot be delivered; empty if it can.
func (m *machine) problem() string {
	err := m.invalid
	switch {
	case m.inputsErr != nil:
		err = m.inputsErr
	case m.reportErr != nil:
		err = fmt.Errorf("decoding Secret %s: %w", m.secret.Name, m.reportErr)
	case m.plan.Error != "":
		return oneLine(m.plan.Error)
	case len(m.encoded) > maxPlanBytes:
		err = fmt.Errorf("the plan has %d bytes, %d are allowed; reduce machineSelectorFiles or additionalManifest", len(m.encoded), maxPlanBytes)
	}
	if err == nil {
		return ""
	}
	return oneLine(err.Error())
}

// oneLine joins the lines of joined errors, for messages.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// change compares the wanted plan with the delivered one.
func (m *machine) change() rollout.Change {
	delivered := m.secret.Data[plans.KeyPlan]
	switch {
	case len(delivered) == 0:
		return rollout.ChangeFirst
	case bytes.Equal(delivered, m.encoded):
		return rollout.ChangeNone
	}
	return machinestate.Change(m.report.Delivered, m.plan)
}

func (s *scope) rolloutInputs(now time.Time) rollout.Inputs {
	strategy := s.controlPlane.Spec.UpgradeStrategy
	in := rollout.Inputs{
		Now: now, Machines: s.states(), OrphanedMembers: s.orphanedMembers, Bootstrapped: s.bootstrapped(),
		ControlPlaneConcurrency: string(strategy.ControlPlaneConcurrency), WorkerConcurrency: string(strategy.WorkerConcurrency),
		ControlPlaneDrain: drainOptions(strategy.ControlPlaneDrainOptions), WorkerDrain: drainOptions(strategy.WorkerDrainOptions),
		Hold: s.hold(), Designated: s.controlPlane.Labels[rkev1.InitNodeMachineIDLabel],
	}
	in.Blocked = s.stopped()
	if in.Blocked == (rollout.Wait{}) {
		in.Blocked = s.outdated
	}
	if s.election.Init == "" {
		in.Blocked = s.election.Wait
	}
	return in
}

// drainOptions encodes the options as the value of rke.cattle.io/drain-options, which hooks answer with.
func drainOptions(o rkev1.DrainOptions) rollout.DrainOptions {
	named := func(h rkev1.DrainHook) bool { return h.Annotation != "" }
	// The same options are the same bytes: fields are in the order of the type. They are strings, numbers and booleans, which cannot fail.
	options, _ := json.Marshal(o)
	hooksOnly := o
	hooksOnly.Enabled = false
	withoutDrain, _ := json.Marshal(hooksOnly)
	return rollout.DrainOptions{
		Enabled: o.Enabled, Hooks: slices.ContainsFunc(o.PreDrainHooks, named) || slices.ContainsFunc(o.PostDrainHooks, named),
		Options: string(options), HooksOnly: string(withoutDrain),
	}
}
