// Package mapfuncs has the functions that several controllers share to map an object to what is to be reconciled for it (handler.MapFunc).
package mapfuncs

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Request returns the request for a key; none for one without a name.
func Request(key client.ObjectKey) []ctrl.Request {
	if key.Name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: key}}
}

// ByLabel maps an object to the one in its namespace that its label names.
func ByLabel(label string) handler.MapFunc {
	return func(_ context.Context, object client.Object) []ctrl.Request {
		return Request(client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetLabels()[label]})
	}
}

// ClusterToControlPlane maps a Cluster to its RKEControlPlane, if it has one.
func ClusterToControlPlane(_ context.Context, object client.Object) []ctrl.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	return named(cluster, cluster.Spec.ControlPlaneRef, "RKEControlPlane")
}

// ClusterToRKECluster maps a Cluster to its RKECluster, if it has one.
func ClusterToRKECluster(_ context.Context, object client.Object) []ctrl.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	return named(cluster, cluster.Spec.InfrastructureRef, "RKECluster")
}

// MachineToBootstrap maps a Machine to its RKEBootstrap, if it has one.
func MachineToBootstrap(_ context.Context, object client.Object) []ctrl.Request {
	machine, ok := object.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	return named(machine, machine.Spec.Bootstrap.ConfigRef, "RKEBootstrap")
}

// named is the object of a kind of the hub that a reference of an object names.
func named(object client.Object, ref clusterv1.ContractVersionedObjectReference, kind string) []ctrl.Request {
	if !rkev1.Refers(ref, kind) {
		return nil
	}
	return Request(client.ObjectKey{Namespace: object.GetNamespace(), Name: ref.Name})
}

// OfCluster maps the Cluster of a key with another function, to none where the Cluster does not exist.
func OfCluster(ctx context.Context, from client.Reader, key client.ObjectKey, toRequests handler.MapFunc) []ctrl.Request {
	cluster := &clusterv1.Cluster{}
	if key.Name == "" || from.Get(ctx, key, cluster) != nil {
		return nil
	}
	return toRequests(ctx, cluster)
}
