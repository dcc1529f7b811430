// Package plansecret reconciles plan Secrets with what agents report in them: it keeps a copy of each applied plan and records when all
// probes were healthy, both with the report itself where that comes through the gateway, retries failed plans with back-off, and writes the
// condition PlanApplied of the Machine. It never changes or delivers a plan. Who writes which part of a plan Secret is in the documentation
// of hub/controllers/rkecontrolplane.
package plansecret

import (
	"context"
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
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/inprogress"
	"github.com/drover-dev/drover/hub/util/paused"
	"github.com/drover-dev/drover/hub/util/plansecrets"
)

const (
	controllerName = "plansecret"
	fieldOwner     = client.FieldOwner("drover-" + controllerName)
)

// Reconciler reconciles plan Secrets.
type Reconciler struct {
	// Client reads everything else and writes. It knows what was written last, so that a condition is set where another controller has just
	// set one.
	Client client.Client
	// Cache reads plan Secrets with their content.
	Cache client.Reader
	// Now is the clock.
	Now func() time.Time

	// progress counts the plans in progress that conditions do not show yet.
	progress inprogress.Counter
}

// SetupWithManager registers the controller, with the clients of the manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Cache, r.Now = mgr.GetClient(), mgr.GetCache(), time.Now
	return ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&corev1.Secret{}, builder.WithPredicates(predicate.NewPredicateFuncs(plansecrets.IsPlanSecret))).
		// A retry that comes due while paused is made when unpaused.
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(plansecrets.ClusterToPlanSecrets(r.Cache, plansecrets.IsPlanSecret)),
			builder.WithPredicates(paused.Unpaused)).
		Watches(&rkev1.RKEControlPlane{},
			handler.EnqueueRequestsFromMapFunc(plansecrets.ControlPlaneToPlanSecrets(r.Cache, plansecrets.IsPlanSecret)),
			builder.WithPredicates(paused.Unpaused)).
		Watches(&rkev1.RKEBootstrap{}, handler.EnqueueRequestsFromMapFunc(bootstrapToPlanSecret), builder.WithPredicates(paused.Unpaused)).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

func bootstrapToPlanSecret(_ context.Context, bootstrap client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: bootstrap.GetNamespace(),
		Name: rkev1.PlanSecretName(bootstrap.GetName())}}}
}

// Reconcile reconciles one plan Secret.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope{secret: &corev1.Secret{}}
	defer func() { r.progress.Set(req.NamespacedName, s.hidden) }()
	if err := r.Cache.Get(ctx, req.NamespacedName, s.secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.secret.DeletionTimestamp.IsZero() || !plansecrets.IsPlanSecret(s.secret) {
		return ctrl.Result{}, nil
	}
	err := r.reconcile(ctx, s)
	if apierrors.IsGone(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: s.requeueAfter}, err
}
