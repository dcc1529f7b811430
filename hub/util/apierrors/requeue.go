package apierrors

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RaceDelay is the delay of a retry after a race: long enough for the cache to have seen the other write.
const RaceDelay = 200 * time.Millisecond

// Requeue wraps a reconciler, so that errors of normal operation are not logged, counted and backed off as failures: a race is retried
// after RaceDelay; errors of a namespace that is being deleted, and of a hub that is stopping, are dropped. All other errors are returned.
func Requeue(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		result, err := r.Reconcile(ctx, req)
		switch {
		case err == nil:
			return result, nil
		case ctx.Err() != nil:
			return ctrl.Result{}, nil
		case IsRace(err):
			ctrl.LoggerFrom(ctx).V(1).Info("Retrying after a conflict", "error", err.Error())
			return ctrl.Result{RequeueAfter: RaceDelay}, nil
		case IsEnding(err):
			ctrl.LoggerFrom(ctx).V(1).Info("Waiting for the namespace to be deleted", "error", err.Error())
			return ctrl.Result{}, nil
		}
		return result, err
	})
}
