package capi

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourceset"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourcesetbinding"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinepool"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	"sigs.k8s.io/cluster-api/feature"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/drover-dev/drover/hub/util/pace"
)

// Grace periods after which what is known of a workload cluster counts as stale; upstream's defaults.
const (
	connectionGracePeriod = 50 * time.Second
	conditionsGracePeriod = 5 * time.Minute
)

// machineSetTimeout is how long a reconcile of a MachineSet may take, which creates all of its Machines one after the other: in upstream's
// minute, ten pools of a thousand created 90 each, and needed another minute to apply the labels of these before they went on. For as
// long its deletion, a pause or another change of it is not looked at, as with upstream's control plane provider.
const machineSetTimeout = 3 * time.Minute

// setupReconcilers adds what upstream's manager runs with its default feature gates. The kinds behind alpha gates (ClusterClass and
// topologies, runtime extensions) have definitions and webhooks, but no controller yet.
func setupReconcilers(ctx context.Context, mgr ctrl.Manager, cache clustercache.ClusterCache, work *pace.Work) error {
	c, reader, cached := mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache()
	paced := func(upstream int, look pace.Look, each time.Duration) controller.Options {
		return work.Pace(concurrency(upstream), look, each)
	}
	steps := []struct {
		name  string
		setup func() error
	}{
		{"CRDMigrator", func() error {
			return (&crdmigrator.CRDMigrator{Client: c, APIReader: reader, Config: migrated()}).SetupWithManager(ctx, mgr, concurrency(1))
		}},
		{"Cluster", func() error {
			return (&cluster.Reconciler{
				Client: newStatusClient(c, &clusterv1.Cluster{}), APIReader: reader, ClusterCache: cache,
				RemoteConnectionGracePeriod: connectionGracePeriod,
			}).SetupWithManager(ctx, mgr, paced(50, pace.Clusters(cached), pace.EachComingUp))
		}},
		{"Machine", func() error {
			return (&machine.Reconciler{
				Client: newStatusClient(unpausedMachines{c}, &clusterv1.Machine{}), APIReader: reader, ClusterCache: machineNodes{quietNodes{cache}},
				RemoteConditionsGracePeriod: conditionsGracePeriod,
			}).SetupWithManager(ctx, mgr, paced(100, pace.Machines(cached), pace.EachMachineComingUp))
		}},
		{"MachineSet", func() error {
			// 50 of a namespace, as upstream has it: they take turns.
			options := work.Pace(controller.Options{MaxConcurrentReconciles: 75}, pace.MachineSets(cached), pace.EachComingUp)
			options.ReconciliationTimeout = machineSetTimeout
			changes, err := machineSetClient(ctx, c, cached)
			if err != nil {
				return err
			}
			return (&machineset.Reconciler{
				Client: newStatusClient(changes, &clusterv1.MachineSet{}), APIReader: reader, ClusterCache: cache,
				PreflightChecks: sets.New(clusterv1.MachineSetPreflightCheckAll),
			}).SetupWithManager(ctx, machineSetManager{mgr}, options)
		}},
		{"MachineDeployment", func() error {
			changes := newStatusClient(newMachineDeploymentClient(c), &clusterv1.MachineDeployment{})
			return (&machinedeployment.Reconciler{Client: changes, APIReader: reader}).SetupWithManager(ctx, mgr,
				paced(50, pace.MachineDeployments(cached), pace.EachComingUp))
		}},
		{"MachinePool", func() error {
			if !feature.Gates.Enabled(feature.MachinePool) {
				return nil
			}
			return (&machinepool.Reconciler{Client: c, APIReader: reader, ClusterCache: cache}).SetupWithManager(ctx, mgr, concurrency(50))
		}},
		{"MachineHealthCheck", func() error {
			settled := newSettledClusters(cache, c)
			if err := forgetDeleted(ctx, cached, settled.forget); err != nil {
				return err
			}
			return (&machinehealthcheck.Reconciler{
				Client: startingMachines{c, settled}, ClusterCache: quietNodes{settled},
			}).SetupWithManager(ctx, mgr, concurrency(50))
		}},
		{"ClusterResourceSet", func() error {
			return (&clusterresourceset.Reconciler{Client: resourcesClient{c}, ClusterCache: cache}).SetupWithManager(ctx, mgr, concurrency(10),
				mgr.GetCache())
		}},
		{"ClusterResourceSetBinding", func() error {
			return (&clusterresourcesetbinding.Reconciler{Client: c}).SetupWithManager(ctx, mgr, concurrency(10))
		}},
	}
	for _, step := range steps {
		if err := step.setup(); err != nil {
			return fmt.Errorf("setting up Cluster API controller %s: %w", step.name, err)
		}
	}
	return nil
}

// migrated are the kinds whose stored objects are rewritten after their storage version has changed. They are not read from the cache,
// which does not have the managed fields that are rewritten, too.
func migrated() map[client.Object]crdmigrator.ByObjectConfig {
	withStatus := crdmigrator.ByObjectConfig{UseStatusForStorageVersionMigration: true}
	kinds := map[client.Object]crdmigrator.ByObjectConfig{
		&addonsv1.ClusterResourceSet{}:        withStatus,
		&addonsv1.ClusterResourceSetBinding{}: {},
		&clusterv1.Cluster{}:                  withStatus,
		&clusterv1.Machine{}:                  withStatus,
		&clusterv1.MachineSet{}:               withStatus,
		&clusterv1.MachineDeployment{}:        withStatus,
		&clusterv1.MachineHealthCheck{}:       withStatus,
		&clusterv1.MachineDrainRule{}:         {},
		&ipamv1.IPAddress{}:                   {},
		&ipamv1.IPAddressClaim{}:              {},
	}
	if feature.Gates.Enabled(feature.MachinePool) {
		kinds[&clusterv1.MachinePool{}] = withStatus
	}
	return kinds
}
