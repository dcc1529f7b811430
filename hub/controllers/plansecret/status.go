package plansecret

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/plans"
)

// updateConditions writes the condition PlanApplied of the Machine.
func (r *Reconciler) updateConditions(ctx context.Context, s *scope) error {
	if c := condition(s); s.machine != nil && worthSaying(c, s.machine) {
		return patch.Conditions(ctx, r.Client, s.machine, fieldOwner, c)
	}
	return nil
}

// worthSaying reports whether an object without the condition gets it. Until a plan was delivered it does not: Reconciled says what a new
// machine waits for, and Cluster API writes its own first conditions at that time, with which other writers cause conflicts.
func worthSaying(c metav1.Condition, object conditions.Getter) bool {
	return c.Reason != rkev1.WaitingForPlanReason || conditions.Has(object, c.Type)
}

// condition is PlanApplied. Its reasons are API. Which probes have not passed says Reconciled.
func condition(s *scope) metav1.Condition {
	c := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: rkev1.PlanAppliedCondition, Status: status, Reason: reason, Message: message}
	}
	if s.reportErr != nil {
		return c(metav1.ConditionUnknown, "ReportInvalid", "Reading the plan Secret failed: "+s.reportErr.Error())
	}
	switch s.report.Progress {
	case rollout.ProgressApplied:
		return c(metav1.ConditionTrue, "Applied", "")
	case rollout.ProgressFailed:
		return c(metav1.ConditionFalse, "Failed", failureMessage(s))
	case rollout.ProgressApplying:
		return c(metav1.ConditionUnknown, "Applying", "Waiting for the agent to apply the plan"+attempt(s.retry))
	case rollout.ProgressPending:
		return c(metav1.ConditionUnknown, "Pending", "Waiting for the agent to start applying the plan"+attempt(s.retry))
	case rollout.ProgressPaused:
		return c(metav1.ConditionUnknown, "Paused", rollout.PausedMessage(s.secret.Name))
	case rollout.ProgressCanceled:
		return c(metav1.ConditionFalse, "Canceled", rollout.CanceledMessage(s.secret.Name))
	}
	return c(metav1.ConditionUnknown, rkev1.WaitingForPlanReason, "Waiting for the first plan to be delivered")
}

// attempt is the end of a message about any attempt but the first.
func attempt(r retry) string {
	if r.Attempts == 0 {
		return ""
	}
	return fmt.Sprintf(" (attempt %d of %d)", r.Attempts+1, maxAttempts)
}

// failureMessage says how often the plan failed, what happens next, the end of the output, and where to find more.
func failureMessage(s *scope) string {
	var text string
	switch {
	case s.report.Status.State != plans.StateFailed:
		text = fmt.Sprintf("Applying the plan failed %d times; the agent is retrying", s.report.Status.FailureCount)
	case render.Restores(s.report.Delivered):
		text = "Restoring the snapshot failed, and is not retried"
	case s.controlPlanePaused:
		text = "Applying the plan failed; waiting for the RKEControlPlane to be unpaused to retry"
	case s.paused:
		text = "Applying the plan failed; waiting for the Cluster to be unpaused to retry"
	case s.retry.exhausted():
		text = fmt.Sprintf("Attempt %d of %d to apply the plan failed; to retry, change the cluster's configuration "+
			"or remove the annotation %s from Secret %s",
			s.retry.Attempts, maxAttempts, rkev1.PlanRetryAnnotation, s.secret.Name)
	case s.retry.Pending:
		text = fmt.Sprintf("Attempt %d of %d to apply the plan failed; retrying now", s.retry.Attempts, maxAttempts)
	default:
		text = fmt.Sprintf("Attempt %d of %d to apply the plan failed; retrying at %s", s.retry.Attempts, maxAttempts,
			s.retry.next().UTC().Format("15:04:05 MST"))
	}
	if output := s.report.FailedOutput(); output != "" {
		text += "; " + output
	}
	return text + "; for details run on the machine: journalctl -u rancher-system-agent.service" + serviceUnit(s.report.Delivered)
}

// serviceUnit is the distribution's unit of the plan, as one more argument of journalctl; empty if the plan configures none.
func serviceUnit(plan plans.Plan) string {
	for _, runtime := range []string{release.K3s, release.RKE2} {
		names := release.NamesOf(runtime)
		if !slices.ContainsFunc(plan.Files, func(f plans.File) bool { return strings.HasPrefix(f.Path, names.ConfigDir+"/") }) {
			continue
		}
		unit := names.ServerUnit
		if slices.ContainsFunc(plan.Instructions, func(i plans.Instruction) bool {
			return slices.Contains(i.Env, "INSTALL_"+names.EnvPrefix+"_EXEC=agent")
		}) {
			unit = names.AgentUnit
		}
		return " -u " + unit + ".service"
	}
	return ""
}
