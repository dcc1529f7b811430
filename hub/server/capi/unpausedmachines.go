package capi

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unpausedMachines is a client for the Machine controller that writes the condition Paused of a new Machine with the first of the others.
// Cluster API writes it before them, in a request and a reconcile of its own; here a Machine without conditions that is not paused is read
// as if it had that one.
type unpausedMachines struct{ client.Client }

// Get implements client.Reader.
func (c unpausedMachines) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, object, opts...)
	machine, ok := object.(*clusterv1.Machine)
	if err != nil || !ok || len(machine.Status.Conditions) > 0 || !machine.DeletionTimestamp.IsZero() {
		return err
	}
	cluster := &clusterv1.Cluster{}
	err = c.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, cluster)
	if err != nil || annotations.IsPaused(cluster, machine) {
		return client.IgnoreNotFound(err)
	}
	conditions.Set(machine, metav1.Condition{
		Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason, ObservedGeneration: machine.Generation,
	})
	return nil
}
