package planstatus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/release"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/plans"
)

// reportCondition writes the condition PlanApplied, and nothing if it is as it should be.
func (r *Reconciler) reportCondition(ctx context.Context, s *scope) error {
	c := condition(s)
	var errs []error
	if s.bootstrap != nil {
		errs = append(errs, patch.Conditions(ctx, r.Client, s.bootstrap, fieldOwner, c))
	}
	if s.machine != nil {
		errs = append(errs, patch.Conditions(ctx, r.Client, s.machine, fieldOwner, c))
	}
	return kerrors.NewAggregate(errs)
}

// condition tells what became of the plan.
func condition(s *scope) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: rkev1.PlanAppliedCondition, Status: status, Reason: reason, Message: message}
	}
	if s.reportErr != nil {
		return is(metav1.ConditionUnknown, "ReportInvalid", "The plan Secret cannot be read: "+s.reportErr.Error())
	}
	switch s.report.Progress {
	case rollout.ProgressApplied:
		if len(s.report.Unhealthy) > 0 {
			return is(metav1.ConditionTrue, "Applied", "Waiting for probes: "+strings.Join(s.report.Unhealthy, ", "))
		}
		return is(metav1.ConditionTrue, "Applied", "")
	case rollout.ProgressFailed:
		return is(metav1.ConditionFalse, "Failed", failureMessage(s))
	case rollout.ProgressApplying:
		return is(metav1.ConditionUnknown, "Applying", "Waiting for the agent to apply the plan"+attempt(s.retry))
	case rollout.ProgressPending:
		return is(metav1.ConditionUnknown, "Pending", "Waiting for the agent to take the plan"+attempt(s.retry))
	case rollout.ProgressPaused:
		return is(metav1.ConditionUnknown, "Paused", "The plan is paused on the machine")
	case rollout.ProgressCanceled:
		return is(metav1.ConditionFalse, "Canceled", "The plan was canceled on the machine")
	}
	return is(metav1.ConditionUnknown, "WaitingForPlan", "Waiting for the hub to deliver the machine's first plan")
}

// attempt tells which attempt is being made, where it is not the first.
func attempt(r retry) string {
	if r.Attempts == 0 {
		return ""
	}
	return fmt.Sprintf("; this is attempt %d of %d", r.Attempts+1, maxAttempts)
}

// failureMessage says how often the plan failed, what comes next, what came out, and where to look.
func failureMessage(s *scope) string {
	var text string
	switch {
	case s.report.Status.State != plans.StateFailed:
		text = fmt.Sprintf("Applying the plan has failed %s; the agent tries again by itself", times(s.report.Status.FailureCount))
	case s.paused:
		text = "Applying the plan has failed; no further attempt is made while the cluster is paused"
	case s.retry.exhausted():
		text = fmt.Sprintf("Attempt %d of %d to apply the plan failed; no further attempt is made until the cluster's configuration changes, "+
			"or the annotation %s is removed from Secret %s", s.retry.Attempts, maxAttempts, retryAnnotation, s.secret.Name)
	case s.retry.Again:
		text = fmt.Sprintf("Attempt %d of %d to apply the plan failed; the next is made now", s.retry.Attempts, maxAttempts)
	default:
		text = fmt.Sprintf("Attempt %d of %d to apply the plan failed; the next is made at %s", s.retry.Attempts, maxAttempts,
			s.retry.next().UTC().Format("15:04:05 MST"))
	}
	for _, name := range slices.Sorted(maps.Keys(s.report.Status.FailedOutput)) {
		if tail := lastLines(s.report.Status.FailedOutput[name]); tail != "" {
			text += fmt.Sprintf("; instruction %s said: %s", name, tail)
		}
	}
	return text + "; on the machine see: journalctl -u rancher-system-agent.service" + serviceUnit(s.report.Delivered)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// lastLines are the end of an output, on one line: conditions are for reading, not for logs.
func lastLines(output []byte) string {
	const most = 300
	text := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(output), ""))
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return "…" + string(runes[len(runes)-most:])
	}
	return string(runes)
}

// serviceUnit names the distribution's unit that the plan runs, as one more argument of journalctl.
func serviceUnit(plan plans.Plan) string {
	for _, runtime := range []string{release.K3s, release.RKE2} {
		names := release.NamesOf(runtime)
		for _, f := range plan.Files {
			if !strings.HasPrefix(f.Path, names.ConfigDir+"/") {
				continue
			}
			for _, i := range plan.Instructions {
				if slices.Contains(i.Env, "INSTALL_"+names.EnvPrefix+"_EXEC=agent") {
					return " -u " + names.AgentUnit + ".service"
				}
			}
			return " -u " + names.ServerUnit + ".service"
		}
	}
	return ""
}
