package provider

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"

	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
)

const clusterFinalizer = "infrastructure.cluster.x-k8s.io/labcluster"

var clusterConditions = []string{labv1.ReadyCondition}

type clusterReconciler struct {
	client   client.Client
	balancer *balancer
}

func (r *clusterReconciler) setup(mgr ctrl.Manager) error {
	toLabCluster := util.ClusterToInfrastructureMapFunc(context.Background(), labv1.GroupVersion.WithKind("LabCluster"), r.client,
		&labv1.LabCluster{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("labcluster").
		For(&labv1.LabCluster{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(toLabCluster)).
		WithOptions(controllerOptions(1)).
		Complete(r)
}

// Reconcile writes the status once at the end.
func (r *clusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	c := &labv1.LabCluster{}
	if err := r.client.Get(ctx, req.NamespacedName, c); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	owner, err := util.GetOwnerCluster(ctx, r.client, c.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the Cluster that owns the LabCluster: %w", err)
	}
	if err != nil {
		owner = nil
	}
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.client, owner, c); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.client, c, clusterFinalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(c, r.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		err := helper.Patch(ctx, c, patch.WithOwnedConditions{Conditions: clusterConditions})
		if !c.DeletionTimestamp.IsZero() {
			err = kerrors.FilterOut(err, apierrors.IsNotFound)
		}
		if err != nil {
			reterr = kerrors.NewAggregate([]error{reterr, fmt.Errorf("writing the LabCluster: %w", err)})
		}
	}()
	if !c.DeletionTimestamp.IsZero() {
		r.balancer.close(req.NamespacedName)
		controllerutil.RemoveFinalizer(c, clusterFinalizer)
		return ctrl.Result{}, nil
	}
	if owner == nil {
		setClusterStatus(c, labv1.WaitingForOwnerReason, "Waiting for a Cluster to own this LabCluster")
		return ctrl.Result{}, nil
	}
	if c.Spec.LoadBalancer {
		endpoint, err := r.balancer.open(req.NamespacedName, owner.Name, c.Spec.ControlPlaneEndpoint)
		if err != nil {
			setClusterStatus(c, labv1.LoadBalancerFailedReason, err.Error())
			return ctrl.Result{}, err
		}
		c.Spec.ControlPlaneEndpoint = endpoint
	}
	setClusterStatus(c, "", "")
	return ctrl.Result{}, nil
}

// setClusterStatus says that the infrastructure is there, or why it is not.
func setClusterStatus(c *labv1.LabCluster, reason, message string) {
	if reason != "" {
		conditions.Set(c, metav1.Condition{Type: labv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
		return
	}
	c.Status.FailureDomains = nil
	for _, name := range c.Spec.FailureDomains {
		c.Status.FailureDomains = append(c.Status.FailureDomains, clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(true)})
	}
	c.Status.Initialization.Provisioned = ptr.To(true)
	conditions.Set(c, metav1.Condition{Type: labv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: labv1.ProvisionedReason})
}
