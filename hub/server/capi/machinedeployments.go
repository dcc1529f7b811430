package capi

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// maxReconciles is of how many reconciles the cluster is known; there are fewer at the same time.
const maxReconciles = 1_000

// machineDeploymentClient is the client of the MachineDeployment controller, which reads a MachineDeployment, and then all MachineSets of
// its namespace to find its own. It gets those of the cluster: admission gives each MachineSet the label of its cluster, and the selector
// of a MachineDeployment that of its own. Otherwise each reconcile copies the MachineSets of all clusters of the namespace.
type machineDeploymentClient struct {
	client.Client
	// reconcileID identifies the reconcile of a context.
	reconcileID func(context.Context) types.UID
	// clusters has the cluster of the MachineDeployment of each reconcile that has not listed MachineSets yet.
	clusters *lru.Cache
}

func newMachineDeploymentClient(c client.Client) *machineDeploymentClient {
	return &machineDeploymentClient{Client: c, reconcileID: controller.ReconcileIDFromContext, clusters: lru.New(maxReconciles)}
}

// Get implements client.Reader.
func (c *machineDeploymentClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	if deployment, ok := obj.(*clusterv1.MachineDeployment); ok && err == nil {
		if id := c.reconcileID(ctx); id != "" {
			c.clusters.Add(id, deployment.Spec.ClusterName)
		}
	}
	return err
}

// List implements client.Reader.
func (c *machineDeploymentClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*clusterv1.MachineSetList); !ok {
		return c.Client.List(ctx, list, opts...)
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	id := c.reconcileID(ctx)
	if cluster, known := c.clusters.Get(id); known && options.LabelSelector == nil {
		c.clusters.Remove(id)
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.(string)}.ApplyToList(options)
	}
	return c.Client.List(ctx, list, options)
}
