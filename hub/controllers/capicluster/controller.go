// Package capicluster reconciles the Cluster of Cluster API, of whichever providers. It reports in the condition KubeconfigAccepted why the
// hub does not use the cluster's kubeconfig. It decides nothing: hub/access/kubeconfig does, for every connection.
package capicluster

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
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

	"github.com/drover-dev/drover/hub/access/kubeconfig"
	"github.com/drover-dev/drover/hub/plan/reasons"
	apierrors "github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/patch"
)

const (
	// AcceptedCondition is False while the hub refuses the kubeconfig of a cluster, and absent otherwise.
	AcceptedCondition = "KubeconfigAccepted"
	// RefusedReason is the only reason of AcceptedCondition. The message names the field, or the owner of the Secret.
	RefusedReason = reasons.KubeconfigRefused

	suffix = "-" + string(secret.Kubeconfig)

	fieldOwner = client.FieldOwner("drover-capicluster")
)

// Reconciler reconciles Clusters whose kubeconfig Secret changed.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Secrets reads Secrets with the content of kubeconfigs; SetupWithManager sets it.
	Secrets client.Reader
}

// SetupWithManager registers the controller. A Cluster is reconciled when it is created, which the cache may see after its Secret, and when
// it is updated while it has the condition, which the cache may see after the Secret was corrected.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Secrets = mgr.GetClient(), mgr.GetCache()
	relevant := predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			cluster, ok := e.ObjectNew.(*clusterv1.Cluster)
			return ok && conditions.Has(cluster, AcceptedCondition)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("capicluster").
		For(&clusterv1.Cluster{}, builder.WithPredicates(relevant)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(toCluster)).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// toCluster maps a kubeconfig Secret to its Cluster by its name, as Cluster API does.
func toCluster(_ context.Context, object client.Object) []ctrl.Request {
	name, found := strings.CutSuffix(object.GetName(), suffix)
	if !found {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: name}}}
}

// Reconcile sets or removes the condition. It writes nothing to a Cluster whose kubeconfig was never refused.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	kubeconfigSecret := &corev1.Secret{}
	found, err := objects.Get(ctx, r.Secrets, client.ObjectKey{Namespace: req.Namespace, Name: req.Name + suffix}, kubeconfigSecret)
	if err != nil {
		return ctrl.Result{}, err
	}
	refusal := ""
	if found {
		if refusal, err = kubeconfig.Check(ctx, r.Client, kubeconfigSecret, cluster); err != nil {
			return ctrl.Result{}, err
		}
	}
	if refusal == "" && !conditions.Has(cluster, AcceptedCondition) {
		return ctrl.Result{}, nil
	}
	helper := patch.NewHelper(r.Client, cluster, fieldOwner, AcceptedCondition)
	if refusal == "" {
		conditions.Delete(cluster, AcceptedCondition)
	} else {
		conditions.Set(cluster, metav1.Condition{
			Type: AcceptedCondition, Status: metav1.ConditionFalse, Reason: RefusedReason, Message: refusal,
		})
	}
	return ctrl.Result{}, helper.Patch(ctx, cluster)
}
