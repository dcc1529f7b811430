package controlplane

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/render"
)

// clusterToControlPlane maps a Cluster to its control plane, if that is ours.
func clusterToControlPlane(_ context.Context, object client.Object) []ctrl.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok {
		return nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.APIGroup != rkev1.GroupVersion.Group || ref.Kind != "RKEControlPlane" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}}}
}

// byCluster maps an object to the control plane of the Cluster that a label names.
func (r *Reconciler) byCluster(label string) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []ctrl.Request {
		return r.ofCluster(ctx, object.GetNamespace(), object.GetLabels()[label])
	}
}

func (r *Reconciler) ofCluster(ctx context.Context, namespace, name string) []ctrl.Request {
	if name == "" {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster); err != nil {
		return nil
	}
	return clusterToControlPlane(ctx, cluster)
}

// managementToControlPlane maps a management Cluster to the control plane of the cluster that it was made for.
func (r *Reconciler) managementToControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	key := ownership.Key(object)
	return r.ofCluster(ctx, key.Namespace, key.Name)
}

// secretToControlPlanes maps plan Secrets and a cluster's own Secrets by their label, and all others by who refers to them.
func (r *Reconciler) secretToControlPlanes(ctx context.Context, object client.Object) []ctrl.Request {
	labels := object.GetLabels()
	if labels[managementv3.RegistrationTokenLabel] == "true" {
		return r.tokenToControlPlane(ctx, object)
	}
	for _, label := range []string{rkev1.ClusterNameLabel, clusterv1.ClusterNameLabel} {
		if requests := r.ofCluster(ctx, object.GetNamespace(), labels[label]); len(requests) > 0 {
			return requests
		}
	}
	// One that somebody else has written may have no label.
	if name, found := strings.CutSuffix(object.GetName(), "-"+string(secret.Kubeconfig)); found {
		if requests := r.ofCluster(ctx, object.GetNamespace(), name); len(requests) > 0 {
			return requests
		}
	}
	if secret, ok := object.(*corev1.Secret); ok && strings.HasPrefix(string(secret.Type), "rke.cattle.io/") && secret.Type != rkev1.AuthConfigSecretType {
		return nil
	}
	return r.referringTo(ctx, render.KindSecret, object)
}

func (r *Reconciler) configMapToControlPlanes(ctx context.Context, object client.Object) []ctrl.Request {
	return r.referringTo(ctx, render.KindConfigMap, object)
}
