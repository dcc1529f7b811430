package app

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/drover-dev/drover/hub/capi"
	"github.com/drover-dev/drover/hub/controllers/bootstrap"
	"github.com/drover-dev/drover/hub/controllers/cluster"
	"github.com/drover-dev/drover/hub/controllers/connection"
	"github.com/drover-dev/drover/hub/controllers/controlplane"
	"github.com/drover-dev/drover/hub/controllers/custommachine"
	"github.com/drover-dev/drover/hub/controllers/drain"
	"github.com/drover-dev/drover/hub/controllers/etcdremoval"
	"github.com/drover-dev/drover/hub/controllers/imported"
	"github.com/drover-dev/drover/hub/controllers/importedkubeconfig"
	"github.com/drover-dev/drover/hub/controllers/infracluster"
	"github.com/drover-dev/drover/hub/controllers/kubeconfigcheck"
	"github.com/drover-dev/drover/hub/controllers/management"
	"github.com/drover-dev/drover/hub/controllers/missingnode"
	"github.com/drover-dev/drover/hub/controllers/nodelookup"
	"github.com/drover-dev/drover/hub/controllers/nodesync"
	"github.com/drover-dev/drover/hub/controllers/planstatus"
	"github.com/drover-dev/drover/hub/controllers/registration"
	"github.com/drover-dev/drover/hub/controllers/timeline"
	"github.com/drover-dev/drover/hub/release"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/hub/signing"
	"github.com/drover-dev/drover/hub/tokens"
	"github.com/drover-dev/drover/hub/tunnelaccess"
)

// workers is how many objects of a kind are worked on at the same time.
const workers = 10

// reconciler is what every package of hub/controllers exports. Clients and readers that are left unset come from the manager.
type reconciler interface {
	SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error
}

// shared is what several controllers have to do with.
type shared struct {
	settings     settings.Settings
	signer       *signing.Signer
	issuer       *tokens.Issuer
	clusterCache *capi.Connections
	releases     *release.Catalog
	presence     connection.Presence
	access       *tunnelaccess.Access
}

// addControllers adds Drover's own controllers, in the order in which a cluster comes to be.
func addControllers(ctx context.Context, mgr ctrl.Manager, s shared) error {
	for _, r := range []reconciler{
		&cluster.Reconciler{},
		&infracluster.Reconciler{},
		&registration.Reconciler{Settings: s.settings, Issuer: s.issuer},
		&management.Reconciler{},
		&bootstrap.Reconciler{Settings: s.settings},
		&controlplane.Reconciler{
			Settings: s.settings, Signer: s.signer, Tokens: s.issuer, ClusterCache: s.clusterCache, Reconnect: s.clusterCache.Reconnect,
			Access: s.access, Releases: s.releases,
		},
		&connection.Reconciler{Presence: s.presence, Settings: s.settings},
		&imported.Reconciler{Reach: s.access.Config},
		&importedkubeconfig.Reconciler{Access: s.access},
		&kubeconfigcheck.Reconciler{},
		&etcdremoval.Reconciler{ClusterCache: s.clusterCache},
		&drain.Reconciler{ClusterCache: s.clusterCache},
		&planstatus.Reconciler{},
		&custommachine.Reconciler{},
		&nodelookup.Reconciler{ClusterCache: s.clusterCache},
		&nodesync.Reconciler{ClusterCache: s.clusterCache},
		&missingnode.Reconciler{ClusterCache: s.clusterCache},
		&timeline.Reconciler{},
	} {
		if err := r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: workers}); err != nil {
			return fmt.Errorf("setting up controller %T: %w", r, err)
		}
	}
	return nil
}
