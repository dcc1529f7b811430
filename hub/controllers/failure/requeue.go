package failure

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RaceDelay is how long a reconciler that lost a race waits before it looks again: long enough for its cache to have seen the winner.
const RaceDelay = 200 * time.Millisecond

// Requeue wraps a reconciler, so that what is part of normal life is not logged, counted and backed off as an error: a lost race is tried
// again after RaceDelay, a namespace that is being deleted is left alone, and a hub that stops just stops. All other errors pass.
func Requeue(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		result, err := r.Reconcile(ctx, req)
		switch {
		case err == nil:
			return result, nil
		case ctx.Err() != nil:
			return ctrl.Result{}, nil
		case IsRace(err):
			ctrl.LoggerFrom(ctx).V(1).Info("Trying again after a conflict", "error", err.Error())
			return ctrl.Result{RequeueAfter: RaceDelay}, nil
		case IsEnding(err):
			ctrl.LoggerFrom(ctx).V(1).Info("Waiting for the namespace to be deleted", "error", err.Error())
			return ctrl.Result{}, nil
		}
		return result, err
	})
}
