package planstatus

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/pause"
)

// fieldOwner names this controller as the writer of fields.
const fieldOwner = client.FieldOwner("drover-planstatus")

// Reconciler reconciles plan Secrets.
type Reconciler struct {
	// Client writes. The manager's, where unset.
	Client client.Client
	// Cache reads plan Secrets with their content. The manager's, where unset.
	Cache client.Reader
	// Now is the clock; time.Now where unset.
	Now func() time.Time
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Cache == nil {
		r.Cache = mgr.GetCache()
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("planstatus").
		For(&corev1.Secret{}, builder.WithPredicates(predicate.NewPredicateFuncs(isPlanSecret))).
		// An attempt that falls due during a pause is made at its end.
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(pause.Ends)).
		Watches(&rkev1.RKEBootstrap{}, handler.EnqueueRequestsFromMapFunc(ofBootstrap), builder.WithPredicates(pause.Ends)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the planstatus controller: %w", err)
	}
	return nil
}

func isPlanSecret(object client.Object) bool {
	secret, ok := object.(*corev1.Secret)
	return ok && secret.Type == rkev1.MachinePlanSecretType
}

// ofCluster maps a Cluster to the plan Secrets of its machines.
func (r *Reconciler) ofCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	var secrets corev1.SecretList
	err := r.Cache.List(ctx, &secrets, client.InNamespace(cluster.GetNamespace()), client.MatchingLabels{rkev1.ClusterNameLabel: cluster.GetName()},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the plan Secrets of a cluster", "Cluster", client.ObjectKeyFromObject(cluster))
		return nil
	}
	var requests []ctrl.Request
	for i := range secrets.Items {
		if isPlanSecret(&secrets.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&secrets.Items[i])})
		}
	}
	return requests
}

func ofBootstrap(_ context.Context, bootstrap client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: bootstrap.GetNamespace(), Name: rkev1.PlanSecretName(bootstrap.GetName())}}}
}

// Reconcile looks at one plan Secret.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := r.Cache.Get(ctx, req.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !secret.DeletionTimestamp.IsZero() || !isPlanSecret(secret) {
		return ctrl.Result{}, nil
	}
	s := &scope{secret: secret}
	err := r.reconcile(ctx, s)
	if failure.IsGone(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: s.requeueAfter}, err
}
