package etcdremoval

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
)

func request(namespace, cluster string) []ctrl.Request {
	if cluster == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: cluster}}}
}

// byLabel maps an object to the Cluster that its label names.
func byLabel(label string) func(context.Context, client.Object) []ctrl.Request {
	return func(_ context.Context, o client.Object) []ctrl.Request {
		return request(o.GetNamespace(), o.GetLabels()[label])
	}
}

// ofControlPlane maps an RKEControlPlane to the Cluster that owns it.
func ofControlPlane(_ context.Context, o client.Object) []ctrl.Request {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind == "Cluster" && ref.APIVersion == clusterv1.GroupVersion.String() {
			return request(o.GetNamespace(), ref.Name)
		}
	}
	return nil
}

// ofPlanSecret maps a plan Secret to its Cluster while that waits: agents report all the time.
func (r *Reconciler) ofPlanSecret(_ context.Context, o client.Object) []ctrl.Request {
	secret, ok := o.(*corev1.Secret)
	if !ok || secret.Type != rkev1.MachinePlanSecretType {
		return nil
	}
	key := client.ObjectKey{Namespace: secret.Namespace, Name: secret.Labels[rkev1.ClusterNameLabel]}
	if _, waits := r.removing.Load(key); !waits {
		return nil
	}
	return request(key.Namespace, key.Name)
}

// ofConnection maps the connection to a cluster, which came or went.
func (r *Reconciler) ofConnection(_ context.Context, o client.Object) []ctrl.Request {
	key := client.ObjectKeyFromObject(o)
	if _, waits := r.removing.Load(key); !waits {
		return nil
	}
	return request(key.Namespace, key.Name)
}

// on makes a predicate that lets updates through where what decides has changed, and everything else always.
func on[T client.Object](changed func(before, after T) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, ok2 := e.ObjectNew.(T)
		return !ok || !ok2 || changed(before, after)
	}}
}

var (
	machineChanged = on(func(before, after *clusterv1.Machine) bool {
		return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
			before.Status.NodeRef != after.Status.NodeRef || deletingReason(before) != deletingReason(after)
	})
	bootstrapChanged = on(func(before, after *rkev1.RKEBootstrap) bool {
		return !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
	})
	controlPlaneChanged = on(func(before, after *rkev1.RKEControlPlane) bool {
		return !maps.Equal(before.Annotations, after.Annotations) || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	})
	// nodeChanged drops what a kubelet reports of its Node every few seconds.
	nodeChanged = on(func(before, after *corev1.Node) bool {
		var a, b rollout.Machine
		a.ReadNode(before)
		b.ReadNode(after)
		return a.NodeDiffers(b) ||
			before.Labels[rkev1.MachineUIDLabel] != after.Labels[rkev1.MachineUIDLabel] || before.Spec.ProviderID != after.Spec.ProviderID
	})
)

func initialized(cluster *clusterv1.Cluster) bool {
	return ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)
}

// deletingReason is how far Cluster API is with the deletion of a Machine.
func deletingReason(machine *clusterv1.Machine) string {
	return conditions.GetReason(machine, clusterv1.MachineDeletingCondition)
}
