package plansecret

import (
	"context"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/plans"
)

// scope is what one reconcile has read.
type scope struct {
	secret *corev1.Secret
	// bootstrap is nil where the Secret belongs to none, machine until Cluster API has adopted the RKEBootstrap.
	bootstrap *rkev1.RKEBootstrap
	machine   *clusterv1.Machine
	// paused is true while a failed plan is not retried, since the Cluster or the RKEBootstrap is paused, or the RKEControlPlane, for which
	// controlPlanePaused is true as well.
	paused, controlPlanePaused bool

	report    rollout.Report
	reportErr error
	// retry is the record of failed attempts.
	retry retry

	// hidden is true while the conditions do not show how far the agent is with a plan.
	hidden       bool
	requeueAfter time.Duration
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	var cluster *clusterv1.Cluster
	var err error
	if s.bootstrap, s.machine, cluster, err = plansecrets.Owners(ctx, r.Client, s.secret); err != nil {
		return err
	}
	s.paused = cluster != nil && annotations.IsPaused(cluster, s.bootstrap)
	s.report, s.reportErr = rollout.ReadReport(s.secret.Data)
	if cluster != nil && !s.paused && s.report.Progress == rollout.ProgressFailed {
		if s.controlPlanePaused, err = plansecrets.ControlPlanePaused(ctx, r.Client, cluster); err != nil {
			return err
		}
		s.paused = s.controlPlanePaused
	}
	if s.reportErr == nil && !s.paused {
		if err := r.updateSecret(ctx, s); err != nil {
			return err
		}
	}
	if wait := s.untilProgressShown(r.progress.Others(client.ObjectKeyFromObject(s.secret)), r.Now()); wait > 0 {
		s.hidden, s.requeueAfter = true, wait
		return nil
	}
	return r.updateConditions(ctx, s)
}

// untilProgressShown is how long the conditions do not yet say how far the agent is with a plan; zero if it is done, or has had its time. A
// plan that is retried is shown at once. others is how many more plans are in progress.
func (s *scope) untilProgressShown(others int, now time.Time) time.Duration {
	inProgress := s.report.Progress == rollout.ProgressPending || s.report.Progress == rollout.ProgressApplying
	if !inProgress || s.reportErr != nil || s.paused || s.retry.Attempts > 0 {
		return 0
	}
	return plansecrets.UntilProgressShown(s.secret, plansecrets.ProgressShownAfter(others), now)
}

// updateSecret writes what follows from the report in one update, if anything does that the gateway has not written with it. The update
// fails on a conflict with the agent, whose new report is then reconciled first.
func (r *Reconciler) updateSecret(ctx context.Context, s *scope) error {
	wanted := s.secret.DeepCopy()
	now := r.Now()
	s.retry = readRetry(wanted.Annotations[rkev1.PlanRetryAnnotation], s.report.Checksum)
	switch s.report.Progress {
	case rollout.ProgressApplied:
		settle(wanted, s.report, now)
	case rollout.ProgressFailed:
		// An agent of the older protocol retries on its own.
		if s.report.Status.State != plans.StateFailed || render.Restores(s.report.Delivered) {
			break
		}
		var retryNow bool
		s.retry, retryNow = s.retry.failed(now)
		if retryNow {
			wanted.Data[plans.KeyPlanState] = []byte(plans.StatePending)
		} else if !s.retry.exhausted() {
			s.requeueAfter = s.retry.next().Sub(now)
		}
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, rkev1.PlanRetryAnnotation, s.retry.encode())
	}
	if maps.Equal(s.secret.Annotations, wanted.Annotations) && reflect.DeepEqual(s.secret.Data, wanted.Data) {
		return nil
	}
	if err := r.Client.Update(ctx, wanted, fieldOwner); err != nil {
		return err
	}
	if s.retry.Pending {
		ctrl.LoggerFrom(ctx).Info("Retrying a failed plan", "attempt", s.retry.Attempts+1, "of", maxAttempts)
	}
	return nil
}
