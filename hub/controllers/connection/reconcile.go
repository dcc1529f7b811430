package connection

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/ownership"
)

// scope is what one pass has read.
type scope struct {
	management *managementv3.Cluster
	// cluster is nil where the management Cluster was made for a cluster of Cluster API.
	cluster *provisioningv1.Cluster
	// controlPlane is nil for imported clusters, and until it is made.
	controlPlane *rkev1.RKEControlPlane
}

// imported tells that the cluster was made elsewhere.
func (s *scope) imported() bool { return s.cluster != nil && s.cluster.Spec.RKEConfig == nil }

// Reconcile finds out whether a cluster is connected, and writes it where it has changed.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	management := &managementv3.Cluster{}
	err := r.Client.Get(ctx, req.NamespacedName, management)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the management Cluster: %w", err)
	}
	if err != nil || !management.DeletionTimestamp.IsZero() {
		r.history.forget(req.Name)
		return ctrl.Result{}, nil
	}
	s := &scope{management: management}
	if err := r.readOwner(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	condition, again := r.look(s)
	for _, write := range []func(context.Context, *scope, metav1.Condition) error{r.writeManagement, r.writeCluster, r.writeControlPlane} {
		if err := write(ctx, s, condition); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// look asks for the session.
func (r *Reconciler) look(s *scope) (metav1.Condition, time.Duration) {
	f := facts{
		connected: r.Presence.Connected(s.management.Name),
		was:       conditions.Get(s.management, managementv3.ConnectedCondition),
		now:       r.Clock.Now(),
		imported:  s.imported(),
		cluster:   ownership.Key(s.management).String(),
		serverURL: r.Settings.ServerURL,
	}
	r.history.look(s.management.Name, &f)
	return decide(f)
}

// readOwner finds what the management Cluster was made for.
func (r *Reconciler) readOwner(ctx context.Context, s *scope) error {
	owned, err := ownership.ClusterOf(ctx, r.Client, s.management)
	if err != nil || owned == nil {
		return err
	}
	s.cluster, s.controlPlane = owned.Provisioning, owned.ControlPlane
	if s.cluster == nil || s.imported() {
		return nil
	}
	capi := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, owned.ObjectKey, capi); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the Cluster %s of Cluster API: %w", owned.ObjectKey, err)
		}
		return nil
	}
	s.controlPlane, _, err = ownership.ControlPlane(ctx, r.Client, capi)
	return err
}

// ours are the conditions that nobody else writes.
var ours = []string{provisioningv1.ConnectedCondition, provisioningv1.AgentDeployedCondition}

func (r *Reconciler) writeManagement(ctx context.Context, s *scope, condition metav1.Condition) error {
	return patch.Conditions(ctx, r.Client, s.management, fieldOwner, condition)
}

func (r *Reconciler) writeCluster(ctx context.Context, s *scope, condition metav1.Condition) error {
	if s.cluster == nil {
		return nil
	}
	helper := patch.NewHelper(r.Client, s.cluster, fieldOwner, ours...)
	conditions.Set(s.cluster, condition)
	deployed := metav1.Condition{Type: provisioningv1.AgentDeployedCondition, Status: metav1.ConditionTrue, Reason: "Deployed"}
	if condition.Status != metav1.ConditionTrue && !s.cluster.Status.AgentDeployed {
		deployed.Status, deployed.Reason, deployed.Message = metav1.ConditionFalse, condition.Reason, condition.Message
	}
	conditions.Set(s.cluster, deployed)
	s.cluster.Status.AgentDeployed = deployed.Status == metav1.ConditionTrue
	return helper.Patch(ctx, s.cluster)
}

func (r *Reconciler) writeControlPlane(ctx context.Context, s *scope, condition metav1.Condition) error {
	if s.controlPlane == nil {
		return nil
	}
	helper := patch.NewHelper(r.Client, s.controlPlane, fieldOwner)
	s.controlPlane.Status.AgentConnected = condition.Status == metav1.ConditionTrue
	return helper.Patch(ctx, s.controlPlane)
}
