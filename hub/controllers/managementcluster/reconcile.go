package managementcluster

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
)

// scope is what one reconcile has read.
type scope struct {
	management *managementv3.Cluster
	// cluster is nil where the management Cluster was made for a Cluster of Cluster API.
	cluster *provisioningv1.Cluster
	// controlPlane is nil for imported clusters, and until it exists.
	controlPlane *rkev1.RKEControlPlane
}

// imported is true for a cluster without rkeConfig: the hub did not make it and reaches it only through its agent.
func (s *scope) imported() bool { return s.cluster != nil && s.cluster.Spec.RKEConfig == nil }

// connected is true from the phase reconcileConnection on while the agent counts as connected.
func (s *scope) connected() bool {
	return conditions.IsTrue(s.management, managementv3.ConnectedCondition)
}

// Reconcile runs the phases, each whether or not another failed.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, _ error) {
	management := &managementv3.Cluster{}
	found, err := objects.Get(ctx, r.Client, req.NamespacedName, management)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found || !management.DeletionTimestamp.IsZero() {
		r.history.forget(req.Name)
		r.watchers.stop(req.Name)
		return ctrl.Result{}, nil
	}
	s := &scope{management: management}
	if err := r.readOwner(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	for _, phase := range []func(context.Context, *scope) (ctrl.Result, error){
		r.reconcileConnection,
		r.reconcileNodeCount,
		r.reconcileKubeconfig,
	} {
		phaseResult, err := phase(ctx, s)
		errs = append(errs, err)
		result = util.LowestNonZeroResult(result, phaseResult)
	}
	return result, kerrors.NewAggregate(errs)
}

// readOwner reads what the management Cluster was made for.
func (r *Reconciler) readOwner(ctx context.Context, s *scope) error {
	owned, err := ownership.ClusterOf(ctx, r.Client, s.management)
	if err != nil || owned == nil {
		return err
	}
	s.cluster, s.controlPlane = owned.Provisioning, owned.ControlPlane
	if s.cluster == nil {
		return nil
	}
	capi, _, err := ownership.ClusterAPI(ctx, r.Client, s.cluster)
	if err != nil || capi == nil {
		return err
	}
	s.controlPlane, _, err = ownership.ControlPlane(ctx, r.Client, capi)
	return err
}

// reconcileConnection sets the condition Connected, and writes it to the Cluster and the RKEControlPlane.
func (r *Reconciler) reconcileConnection(ctx context.Context, s *scope) (ctrl.Result, error) {
	inputs := connectionInputs{
		connected: r.Access.Connected(s.management.Name),
		previous:  conditions.Get(s.management, managementv3.ConnectedCondition),
		now:       r.Clock.Now(),
		imported:  s.imported(),
		cluster:   ownership.Key(s.management).String(),
		serverURL: r.Access.Settings.ServerURL,
	}
	r.history.observe(s.management.Name, &inputs)
	condition, requeueAfter := connectedCondition(inputs)
	// The next condition is computed from that of the management Cluster, so that this is stored before it is copied.
	if err := patch.Conditions(ctx, r.Client, s.management, fieldOwner, condition); err != nil {
		return ctrl.Result{}, err
	}
	conditions.Set(s.management, condition) // for the phases that follow
	err := kerrors.NewAggregate([]error{r.patchCluster(ctx, s.cluster, condition), r.patchControlPlane(ctx, s.controlPlane, condition)})
	return ctrl.Result{RequeueAfter: requeueAfter}, err
}

func (r *Reconciler) patchCluster(ctx context.Context, cluster *provisioningv1.Cluster, condition metav1.Condition) error {
	if cluster == nil {
		return nil
	}
	helper := patch.NewHelper(r.Client, cluster, fieldOwner, provisioningv1.ConnectedCondition, provisioningv1.AgentDeployedCondition)
	conditions.Set(cluster, condition)
	deployed := metav1.Condition{Type: provisioningv1.AgentDeployedCondition, Status: metav1.ConditionTrue, Reason: "Deployed"}
	if condition.Status != metav1.ConditionTrue && !cluster.Status.AgentDeployed {
		deployed.Status, deployed.Reason, deployed.Message = metav1.ConditionFalse, condition.Reason, condition.Message
	}
	conditions.Set(cluster, deployed)
	cluster.Status.AgentDeployed = deployed.Status == metav1.ConditionTrue
	return helper.Patch(ctx, cluster)
}

func (r *Reconciler) patchControlPlane(ctx context.Context, controlPlane *rkev1.RKEControlPlane, condition metav1.Condition) error {
	if controlPlane == nil {
		return nil
	}
	helper := patch.NewHelper(r.Client, controlPlane, fieldOwner)
	controlPlane.Status.AgentConnected = condition.Status == metav1.ConditionTrue
	return helper.Patch(ctx, controlPlane)
}

// reasonWaitingForAPI is that of an imported cluster whose API does not answer through its agent.
const reasonWaitingForAPI = "WaitingForAPI"

// reconcileNodeCount watches the Nodes of an imported cluster while it is connected, and sets its version and number of Nodes, and whether
// its API answers. What the watch sees later brings another reconcile.
func (r *Reconciler) reconcileNodeCount(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.imported() || !s.connected() {
		r.watchers.stop(s.management.Name)
		return ctrl.Result{}, nil
	}
	observed := r.watchers.watch(s.management.Name)
	if !observed.reached && observed.unreachableSince.IsZero() {
		return ctrl.Result{}, nil
	}
	helper := patch.NewHelper(r.Client, s.management, fieldOwner, managementv3.APIReachableCondition)
	if observed.unreachableSince.IsZero() {
		conditions.Delete(s.management, managementv3.APIReachableCondition)
	} else {
		conditions.Set(s.management, metav1.Condition{Type: managementv3.APIReachableCondition, Status: metav1.ConditionFalse,
			Reason: reasonWaitingForAPI, Message: "The API of the cluster has not answered through the cluster agent since " +
				observed.unreachableSince.UTC().Format(time.RFC3339)})
	}
	if observed.version != nil {
		s.management.Status.Version = observed.version
	}
	if observed.counted {
		s.management.Status.NodeCount = observed.nodes
	}
	return ctrl.Result{}, helper.Patch(ctx, s.management)
}
