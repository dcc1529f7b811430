package capi

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// forgetDeleted calls forget for each Cluster that is deleted. Its kubeconfig Secret cannot be read without it, so that nothing is kept of
// it later.
func forgetDeleted(ctx context.Context, clusters cache.Informers, forget func(client.ObjectKey)) error {
	informer, err := clusters.GetInformer(ctx, &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching Clusters: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		name, err := toolscache.DeletionHandlingObjectToName(object)
		if err == nil {
			forget(client.ObjectKey{Namespace: name.Namespace, Name: name.Name})
		}
	}})
	if err != nil {
		return fmt.Errorf("watching Clusters: %w", err)
	}
	return nil
}
