// Package kubeconfigcheck tells the users of a Cluster of Cluster API why the hub does not open the cluster's kubeconfig. It decides nothing:
// hub/kubeconfig says what is refused, and the connections to clusters are made, or not, without this package.
package kubeconfigcheck

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/kubeconfig"
)

const (
	// AcceptedCondition, on a Cluster of Cluster API, is False while the hub does not open the cluster's kubeconfig; else it is not there.
	AcceptedCondition = "KubeconfigAccepted"
	// RefusedReason is the reason of AcceptedCondition; the message names the field.
	RefusedReason = "KubeconfigRefused"

	suffix = "-" + string(secret.Kubeconfig)

	fieldOwner = client.FieldOwner("drover-kubeconfigcheck")
)

// Reconciler reconciles Clusters whose kubeconfig Secret has changed.
type Reconciler struct {
	// Client is the manager's, where unset.
	Client client.Client
	// Cache reads Secrets with the content of kubeconfigs; the manager's, where unset.
	Cache client.Reader
}

// SetupWithManager registers the controller. Of Clusters the first sight counts, which may come after that of the Secret, and those with the
// condition: the cache may show it after the Secret has been put right.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Cache == nil {
		r.Cache = mgr.GetCache()
	}
	relevant := predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			cluster, ok := e.ObjectNew.(*clusterv1.Cluster)
			return ok && conditions.Has(cluster, AcceptedCondition)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("kubeconfigcheck").
		For(&clusterv1.Cluster{}, builder.WithPredicates(relevant)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(toCluster)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the kubeconfigcheck controller: %w", err)
	}
	return nil
}

// toCluster maps a kubeconfig Secret to its Cluster, which Cluster API finds by the name.
func toCluster(_ context.Context, object client.Object) []ctrl.Request {
	name, found := strings.CutSuffix(object.GetName(), suffix)
	if !found {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: name}}}
}

// Reconcile writes nothing to a Cluster whose kubeconfig was never refused.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	found := &corev1.Secret{}
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: req.Name + suffix}, found)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the kubeconfig Secret: %w", err)
	}
	var refused error
	if !apierrors.IsNotFound(err) {
		refused = kubeconfig.Check(found)
	}
	if refused == nil && !conditions.Has(cluster, AcceptedCondition) {
		return ctrl.Result{}, nil
	}
	helper := patch.NewHelper(r.Client, cluster, fieldOwner, AcceptedCondition)
	if refused == nil {
		conditions.Delete(cluster, AcceptedCondition)
	} else {
		conditions.Set(cluster, metav1.Condition{Type: AcceptedCondition, Status: metav1.ConditionFalse, Reason: RefusedReason, Message: refused.Error()})
	}
	return ctrl.Result{}, helper.Patch(ctx, cluster)
}
