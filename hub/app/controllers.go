package app

import (
	"context"
	"fmt"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/drover-dev/drover/hub/settings"
)

// reconciler is what every package of hub/controllers exports.
type reconciler interface {
	SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error
}

// addControllers adds Drover's own controllers.
func addControllers(ctx context.Context, mgr ctrl.Manager, settings settings.Settings, clusterCache clustercache.ClusterCache) error {
	for _, r := range reconcilers(mgr, settings, clusterCache) {
		if err := r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10}); err != nil {
			return fmt.Errorf("setting up controller %T: %w", r, err)
		}
	}
	return nil
}

func reconcilers(_ ctrl.Manager, _ settings.Settings, _ clustercache.ClusterCache) []reconciler {
	return nil
}
