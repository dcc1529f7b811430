package agentupgrade

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/agentupgrade"
	"github.com/drover-dev/drover/hub/util/clustermachines"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/plans"
)

// maxReport bounds what a condition quotes of an agent.
const maxReport = 512

// answerTime is how long workers wait for the version of the agent of a server, which may be none that answers.
const answerTime = 30 * time.Second

// machine is a machine with a plan Secret of its own.
type machine struct {
	clustermachines.Machine
	secret *corev1.Secret
}

// Reconcile reconciles one Cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &provisioningv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	requested := cluster.Spec.RedeploySystemAgentGeneration > 0
	if cluster.Spec.RKEConfig == nil || !cluster.DeletionTimestamp.IsZero() ||
		!requested && !conditions.Has(cluster, provisioningv1.SystemAgentsUpgradedCondition) {
		return ctrl.Result{}, nil
	}
	capiCluster, _, err := ownership.ClusterAPI(ctx, r.Client, cluster)
	if err != nil || capiCluster == nil || annotations.IsPaused(capiCluster, cluster) {
		return ctrl.Result{}, err
	}
	if !requested {
		return ctrl.Result{}, r.forget(ctx, cluster)
	}
	machines, err := r.machines(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	in, err := r.inputs(cluster, machines)
	if err != nil {
		return ctrl.Result{}, err
	}
	decisions := agentupgrade.Decide(in)
	var errs []error
	for i, d := range decisions {
		errs = append(errs, r.request(ctx, in, machines[i], d), r.report(ctx, machines[i], d))
	}
	status, reason, text := agentupgrade.Summary(in, decisions)
	errs = append(errs, patch.Conditions(ctx, r.Client, cluster, fieldOwner, metav1.Condition{
		Type: provisioningv1.SystemAgentsUpgradedCondition, Status: status, Reason: reason, Message: text}))
	result := ctrl.Result{}
	if slices.ContainsFunc(decisions, func(d agentupgrade.Decision) bool { return d.Awaited }) {
		result.RequeueAfter = answerTime
	}
	return result, kerrors.NewAggregate(errs)
}

// forget removes the condition of a Cluster whose generation was removed. Those of its machines say what became of their agents.
func (r *Reconciler) forget(ctx context.Context, cluster *provisioningv1.Cluster) error {
	helper := patch.NewHelper(r.Client, cluster, fieldOwner, provisioningv1.SystemAgentsUpgradedCondition)
	conditions.Delete(cluster, provisioningv1.SystemAgentsUpgradedCondition)
	return helper.Patch(ctx, cluster)
}

// machines are those of the cluster that have a plan Secret and are not being deleted.
func (r *Reconciler) machines(ctx context.Context, cluster client.ObjectKey) ([]machine, error) {
	listed, err := clustermachines.List(ctx, r.Cache, cluster)
	if err != nil {
		return nil, err
	}
	secrets, err := plansecrets.ByName(ctx, r.Cache, cluster)
	if err != nil {
		return nil, err
	}
	var machines []machine
	for _, m := range listed {
		secret := plansecrets.Of(m.Bootstrap, secrets)
		if secret != nil && m.DeletionTimestamp.IsZero() && secret.DeletionTimestamp.IsZero() {
			machines = append(machines, machine{m, secret})
		}
	}
	return machines, nil
}

// inputs are what is to be decided about.
func (r *Reconciler) inputs(cluster *provisioningv1.Cluster, machines []machine) (agentupgrade.Inputs, error) {
	checksums, err := r.Checksums()
	if err != nil {
		return agentupgrade.Inputs{}, err
	}
	strategy := cluster.Spec.RKEConfig.UpgradeStrategy
	in := agentupgrade.Inputs{Generation: cluster.Spec.RedeploySystemAgentGeneration, Checksums: checksums,
		ControlPlaneConcurrency: string(strategy.ControlPlaneConcurrency), WorkerConcurrency: string(strategy.WorkerConcurrency)}
	for _, m := range machines {
		next := agentupgrade.Machine{Name: m.Name, Server: isServer(m.secret), Asked: len(m.secret.Data[plans.KeyAgentUpgrade]) > 0}
		next.Awaited = next.Asked && awaited(m.Bootstrap)
		// What this hub has not signed, it has not requested.
		next.Requested, _ = r.Signer.Upgrade(m.secret.Data[plans.KeyAgentUpgrade], nameOf(m.secret))
		// A report that cannot be decoded is none.
		status, _ := plans.DecodeStatus(plans.SecretData{plans.KeyAgentStatus: m.secret.Data[plans.KeyAgentStatus]})
		if next.Reported = status.Agent; next.Reported != nil {
			next.Reported.Message = message.Bound(next.Reported.Message, maxReport)
			next.Reported.Version = message.Bound(next.Reported.Version, maxReport)
		}
		in.Machines = append(in.Machines, next)
	}
	return in, nil
}

// awaited reports whether an agent that has not answered may do so soon: its condition has said so since it was asked.
func awaited(bootstrap *rkev1.RKEBootstrap) bool {
	c := meta.FindStatusCondition(bootstrap.Status.Conditions, rkev1.SystemAgentUpgradedCondition)
	return c == nil || c.Reason != string(agentupgrade.NotReported) || time.Since(c.LastTransitionTime.Time) < answerTime
}

// nameOf is the name that signatures for a machine are for.
func nameOf(secret *corev1.Secret) string { return secret.Namespace + "/" + secret.Name }

// request writes what was decided into the plan Secret. It fails on a conflict with any other writer since it was read.
func (r *Reconciler) request(ctx context.Context, in agentupgrade.Inputs, m machine, d agentupgrade.Decision) error {
	u := plans.AgentUpgrade{Generation: in.Generation}
	var value []byte
	var err error
	switch d.Action {
	case agentupgrade.None:
		return nil
	case agentupgrade.Ask:
		value = fmt.Appendf(nil, `{"generation":%d}`, in.Generation)
	case agentupgrade.Request:
		u.Checksums = in.Checksums
		if value, err = r.Signer.SignUpgrade(u, m.secret.Data[plans.KeyAgentUpgrade], nameOf(m.secret)); err != nil {
			return err
		}
	}
	wanted := m.secret.DeepCopy()
	if wanted.Data == nil {
		wanted.Data = map[string][]byte{}
	}
	wanted.Data[plans.KeyAgentUpgrade] = value
	merge := client.MergeFromWithOptions(m.secret, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, wanted, merge, fieldOwner); err != nil {
		return fmt.Errorf("writing the plan Secret of Machine %s: %w", m.Name, err)
	}
	if d.Action == agentupgrade.Request {
		ctrl.LoggerFrom(ctx).Info("Requested an upgrade of the system-agent", "Machine", m.Namespace+"/"+m.Name, "generation", in.Generation)
	}
	return nil
}

// report writes the condition of RKEBootstrap and Machine.
func (r *Reconciler) report(ctx context.Context, m machine, d agentupgrade.Decision) error {
	c := metav1.Condition{Type: rkev1.SystemAgentUpgradedCondition, Status: d.State.Status(), Reason: string(d.State), Message: d.Message}
	return kerrors.NewAggregate([]error{
		patch.Conditions(ctx, r.Client, m.Bootstrap, fieldOwner, c),
		patch.Conditions(ctx, r.Client, m.Machine.Machine, fieldOwner, c),
	})
}
