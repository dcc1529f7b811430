package drain

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
)

// scope is what one pass has read and found.
type scope struct {
	secret *corev1.Secret
	// machine is nil where it is gone.
	machine *clusterv1.Machine
	cluster client.ObjectKey
	paused  bool
	// options are those that were asked for; set by step.
	options rkev1.DrainOptions
	// notes are what was noted, and then what is to be noted.
	notes notes
	// over is set when nothing is left to be done, so that the annotations go.
	over bool

	requeueAfter time.Duration
}

func (r *Reconciler) readOwners(ctx context.Context, s *scope) error {
	_, machine, err := ownership.PlanOwners(ctx, r.Client, s.secret)
	if err != nil || machine == nil {
		return err
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Cluster of Machine %s: %w", machine.Name, err)
	}
	s.machine, s.cluster, s.paused = machine, client.ObjectKeyFromObject(cluster), annotations.IsPaused(cluster, machine)
	return nil
}

// write notes what came of the pass, if anything did. It fails if anybody has written the Secret since it was read: what is asked for may be
// another thing by now.
func (r *Reconciler) write(ctx context.Context, s *scope) error {
	wanted := s.secret.DeepCopy()
	if s.over {
		forget(wanted, s.options)
	} else {
		s.notes.writeTo(wanted)
	}
	if maps.Equal(s.secret.Annotations, wanted.Annotations) {
		return nil
	}
	if err := r.Client.Patch(ctx, wanted, client.MergeFromWithOptions(s.secret, client.MergeFromWithOptimisticLock{}), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("noting how far the drain is: %w", err)
	}
	log := ctrl.LoggerFrom(ctx).WithValues("Machine", s.secret.Namespace+"/"+s.secret.Labels[rkev1.MachineNameLabel])
	switch {
	case s.over:
		log.Info("Ended a drain")
	case s.notes.done != "" && s.secret.Annotations[rkev1.DrainDoneAnnotation] != s.notes.done:
		log.Info("Drained a machine")
	}
	return nil
}
