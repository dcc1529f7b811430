package server

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/controllers/agentupgrade"
	"github.com/drover-dev/drover/hub/controllers/capicluster"
	"github.com/drover-dev/drover/hub/controllers/cluster"
	"github.com/drover-dev/drover/hub/controllers/clusterregistrationtoken"
	"github.com/drover-dev/drover/hub/controllers/custommachine"
	"github.com/drover-dev/drover/hub/controllers/drivermachine"
	"github.com/drover-dev/drover/hub/controllers/etcdsnapshot"
	"github.com/drover-dev/drover/hub/controllers/machinerequest"
	"github.com/drover-dev/drover/hub/controllers/managementcluster"
	"github.com/drover-dev/drover/hub/controllers/nodedrain"
	nodedrivercontroller "github.com/drover-dev/drover/hub/controllers/nodedriver"
	"github.com/drover-dev/drover/hub/controllers/nodesync"
	"github.com/drover-dev/drover/hub/controllers/operation"
	"github.com/drover-dev/drover/hub/controllers/plansecret"
	"github.com/drover-dev/drover/hub/controllers/preterminatehook"
	"github.com/drover-dev/drover/hub/controllers/rkebootstrap"
	"github.com/drover-dev/drover/hub/controllers/rkecluster"
	"github.com/drover-dev/drover/hub/controllers/rkecontrolplane"
	"github.com/drover-dev/drover/hub/controllers/timeline"
	"github.com/drover-dev/drover/hub/gateway/downloads"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/server/capi"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/fairqueue"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/hub/util/pace"
)

// workers is how many objects of a kind are worked on at the same time, ten of them in one namespace.
const workers = 15

// reconciler is what every package of hub/controllers exports. Clients and readers that are left unset come from the manager.
type reconciler interface {
	SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error
}

// shared is what several controllers have to do with. What controllers of no provider of this process need is not set.
type shared struct {
	settings     settings.Settings
	signer       *signing.Signer
	issuer       *tokens.Issuer
	clusterCache *capi.Connections
	releases     *release.Catalog
	access       *tunnelaccess.Access
	operations   *operations.Metrics
	work         *pace.Work
	// agents are those that the gateway hands out.
	agents *downloads.Files
	// drivers runs node drivers, driverMachines has it create and remove machines.
	drivers        nodedriver.Drivers
	driverMachines *drivermachine.Reconciler
}

// addControllers adds Drover's own controllers, those of each provider in the order in which a cluster comes to be.
func addControllers(ctx context.Context, mgr ctrl.Manager, providers provider.Set, s shared) error {
	for _, p := range []struct {
		provider.Provider
		controllers func(shared) ([]reconciler, error)
	}{
		{provider.Infrastructure, infrastructureControllers}, {provider.Bootstrap, bootstrapControllers},
		{provider.ControlPlane, controlPlaneControllers},
	} {
		if !providers.Has(p.Provider) {
			continue
		}
		reconcilers, err := p.controllers(s)
		if err != nil {
			return err
		}
		for _, r := range reconcilers {
			if err := r.SetupWithManager(ctx, mgr, fairqueue.Options(workers)); err != nil {
				return fmt.Errorf("setting up controller %T: %w", r, err)
			}
		}
	}
	return nil
}

func infrastructureControllers(s shared) ([]reconciler, error) {
	return []reconciler{
		&rkecluster.Reconciler{},
		&machinerequest.Reconciler{},
		&custommachine.Reconciler{ClusterCache: s.clusterCache},
		&nodedrivercontroller.Reconciler{Drivers: s.drivers},
		s.driverMachines,
	}, nil
}

func bootstrapControllers(s shared) ([]reconciler, error) {
	return []reconciler{&rkebootstrap.Reconciler{Settings: s.settings}}, nil
}

func controlPlaneControllers(s shared) ([]reconciler, error) {
	return []reconciler{
		&cluster.Reconciler{Work: s.work},
		&clusterregistrationtoken.Reconciler{Settings: s.settings, Issuer: s.issuer},
		&managementcluster.Reconciler{Access: s.access, Registerer: metrics.Registry},
		&rkecontrolplane.Reconciler{
			Settings: s.settings, Signer: s.signer, Tokens: s.issuer, ClusterCache: s.clusterCache, Reconnect: s.clusterCache.Reconnect,
			Access: s.access, Releases: s.releases, Registerer: metrics.Registry, Operations: s.operations,
		},
		&operation.Reconciler{Operations: s.operations},
		&capicluster.Reconciler{},
		&preterminatehook.Reconciler{ClusterCache: s.clusterCache},
		&nodedrain.Reconciler{ClusterCache: s.clusterCache},
		&plansecret.Reconciler{},
		&agentupgrade.Reconciler{Signer: s.signer, Checksums: s.agents.AgentChecksums},
		&nodesync.Reconciler{ClusterCache: s.clusterCache},
		&etcdsnapshot.Reconciler{ClusterCache: s.clusterCache, Registerer: metrics.Registry},
		&timeline.Reconciler{},
	}, nil
}
