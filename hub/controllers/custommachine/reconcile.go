package custommachine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/hub/util/paused"
)

// scope is what one reconcile has read and found.
type scope struct {
	custom *rkev1.CustomMachine
	// machine is nil until Cluster API has set the owner reference.
	machine *clusterv1.Machine
	// refused says why the Machine that the CustomMachine names as its owner does not count.
	refused *cause.Cause
	// cluster is nil while machine is, and while the Cluster does not exist.
	cluster *clusterv1.Cluster
	// node is set by reconcileNode once the Node was found, waiting where it was not. Both are nil where it was not looked for.
	node    *corev1.Node
	waiting *cause.Cause
	// unknown is set by reconcileNode where the cluster could not be asked: the condition is Unknown then, not False.
	unknown bool
}

// Reconcile runs the phases and writes the CustomMachine once at the end. There is nothing to remove when a CustomMachine is deleted: the
// machine stays with its owner, and its credentials are deleted with the RKEBootstrap.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	custom := &rkev1.CustomMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, custom); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !custom.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, objects.ReleaseFromRancher(ctx, r.Client, custom, fieldOwner)
	}
	s, err := r.newScope(ctx, custom)
	if err != nil {
		return ctrl.Result{}, err
	}
	helper := patch.NewHelper(r.Client, custom, fieldOwner, ownedConditions...)
	if isPaused, changed, err := paused.EnsureCondition(ctx, r.Client, s.cluster, custom); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	defer func() {
		setStatus(s)
		reterr = kerrors.NewAggregate([]error{reterr, helper.Patch(ctx, custom)})
	}()
	if s.cluster == nil {
		return ctrl.Result{}, nil
	}
	var errs []error
	for _, phase := range []func(context.Context, *scope) (ctrl.Result, error){
		r.reconcileNode, r.reconcileNodeRef, r.reconcileMissingNode,
	} {
		phaseResult, err := phase(ctx, s)
		errs = append(errs, err)
		result = util.LowestNonZeroResult(result, phaseResult)
	}
	return result, kerrors.NewAggregate(errs)
}

// newScope reads the Machine and the Cluster of a CustomMachine.
func (r *Reconciler) newScope(ctx context.Context, custom *rkev1.CustomMachine) (*scope, error) {
	machine, refusal, err := ownership.Machine(ctx, r.Client, custom)
	if err != nil {
		return nil, err
	}
	s := &scope{custom: custom, machine: machine, refused: refusal}
	if machine == nil {
		return s, nil
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the Cluster of the CustomMachine: %w", err)
	}
	if err == nil {
		s.cluster = cluster
	}
	return s, nil
}
