package capi

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/ssa"
)

// machineSetClient returns the client of the MachineSet controller. That controller applies a Machine, its bootstrap configuration and its
// infrastructure machine again whenever the resource version of that object has changed, so after each report of the machine, and looks at
// all of them in each reconcile. Requests that would change nothing are left out here, and so are those of a new object that would change
// who owns its metadata and nothing else; the others take turns.
func machineSetClient(ctx context.Context, c client.Client, machines cache.Informers) (client.Client, error) {
	changes := metadataClient{ssa.NewClient(newTurns(c), comparedByMachineSets)}
	informer, err := machines.GetInformer(ctx, &clusterv1.Machine{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching Machines: %w", err)
	}
	// A Machine that a MachineSet has created has the name of its bootstrap configuration and of its infrastructure machine.
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(deleted any) {
		if key, err := toolscache.DeletionHandlingObjectToName(deleted); err == nil {
			changes.Forget(client.ObjectKey{Namespace: key.Namespace, Name: key.Name})
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watching Machines: %w", err)
	}
	return changes, nil
}

// comparedByMachineSets are Machines: the Machine controller writes the name of the bootstrap data and the provider ID of one, and the hub
// its version. The MachineSet controller applies the version and the failure domain that a Machine has, except where it updates one in
// place.
var comparedByMachineSets = map[schema.GroupKind][]string{
	{Group: clusterv1.GroupVersion.Group, Kind: "Machine"}: {"version", "failureDomain"},
}

// machineSetManager is the manager of the MachineSet controller, which looks at all MachineSets of a namespace twice for each event of a
// Machine that no controller owns, as a custom machine is: one of them may select it. With 430 clusters of which each has one, that was a
// sixteenth of the processor.
type machineSetManager struct{ ctrl.Manager }

// GetCache implements cluster.Cluster.
func (m machineSetManager) GetCache() cache.Cache {
	return quietCache{m.Manager.GetCache(), isSameOrphan}
}

// isSameOrphan reports whether a Machine that no controller owns has changed in nothing by which a MachineSet may select it.
func isSameOrphan(before, after client.Object) bool {
	b, isMachine := before.(*clusterv1.Machine)
	a, stillMachine := after.(*clusterv1.Machine)
	return isMachine && stillMachine && metav1.GetControllerOfNoCopy(b) == nil && metav1.GetControllerOfNoCopy(a) == nil &&
		b.ResourceVersion != a.ResourceVersion && b.DeletionTimestamp.IsZero() == a.DeletionTimestamp.IsZero() &&
		maps.Equal(b.Labels, a.Labels)
}
