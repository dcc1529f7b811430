package capi

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/ssa"
)

// machineSetClient returns the client of the MachineSet controller. That controller applies a Machine, its bootstrap configuration and its
// infrastructure machine again whenever the resource version of that object has changed, so after each report of the machine, and looks at
// all of them in each reconcile. Requests that would change nothing are left out here, and the others take turns.
func machineSetClient(ctx context.Context, c client.Client, machines cache.Informers) (client.Client, error) {
	changes := ssa.NewClient(newTurns(c))
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
