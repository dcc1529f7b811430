package planstatus

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/plans"
)

// scope is what one pass has read and found.
type scope struct {
	secret *corev1.Secret
	// bootstrap is nil where the Secret belongs to none, machine as long as Cluster API has not taken the RKEBootstrap over.
	bootstrap *rkev1.RKEBootstrap
	machine   *clusterv1.Machine
	paused    bool

	report    rollout.Report
	reportErr error
	// retry is what is known of the attempts that failed.
	retry retry

	requeueAfter time.Duration
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	if err := r.readOwners(ctx, s); err != nil {
		return err
	}
	s.report, s.reportErr = rollout.ReadReport(s.secret.Data)
	if s.reportErr == nil && !s.paused {
		if err := r.updateSecret(ctx, s); err != nil {
			return err
		}
	}
	return r.reportCondition(ctx, s)
}

// readOwners finds the machine of the plan Secret.
func (r *Reconciler) readOwners(ctx context.Context, s *scope) error {
	var err error
	if s.bootstrap, s.machine, err = ownership.PlanOwners(ctx, r.Cache, s.secret); err != nil || s.machine == nil {
		return err
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, s.machine.Namespace, s.machine.Spec.ClusterName)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Cluster of Machine %s: %w", s.machine.Name, err)
	}
	s.paused = err == nil && annotations.IsPaused(cluster, s.bootstrap)
	return nil
}

// updateSecret writes what follows from the report, all at once, and nothing where nothing does. The write fails if the agent has written
// since, and then its new report is looked at first.
func (r *Reconciler) updateSecret(ctx context.Context, s *scope) error {
	wanted := s.secret.DeepCopy()
	now := r.Now()
	s.retry = readRetry(wanted.Annotations[retryAnnotation], s.report.Checksum)
	switch s.report.Progress {
	case rollout.ProgressApplied:
		if !bytes.Equal(wanted.Data[plans.KeyAppliedPlan], wanted.Data[plans.KeyPlan]) {
			wanted.Data[plans.KeyAppliedPlan] = wanted.Data[plans.KeyPlan]
		}
		if len(s.report.Unhealthy) == 0 && wanted.Annotations[rkev1.PlanProbesPassedAnnotation] == "" {
			metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, rkev1.PlanProbesPassedAnnotation, now.UTC().Format(time.RFC3339))
		}
		delete(wanted.Annotations, retryAnnotation)
	case rollout.ProgressFailed:
		// An agent of the older protocol tries again by itself.
		if s.report.Status.State != plans.StateFailed {
			break
		}
		var again bool
		s.retry, again = s.retry.failed(now)
		if again {
			wanted.Data[plans.KeyPlanState] = []byte(plans.StatePending)
		} else if !s.retry.exhausted() {
			s.requeueAfter = s.retry.next().Sub(now)
		}
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, retryAnnotation, s.retry.encode())
	}
	if maps.Equal(s.secret.Annotations, wanted.Annotations) && reflect.DeepEqual(s.secret.Data, wanted.Data) {
		return nil
	}
	if err := r.Client.Update(ctx, wanted, fieldOwner); err != nil {
		return err
	}
	if s.retry.Again {
		ctrl.LoggerFrom(ctx).Info("Set a failed plan pending again", "attempt", s.retry.Attempts+1, "of", maxAttempts)
	}
	return nil
}
