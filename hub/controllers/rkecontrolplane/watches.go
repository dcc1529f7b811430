package rkecontrolplane

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// labelToControlPlane maps an object to the RKEControlPlane of the Cluster that its label names.
func (r *Reconciler) labelToControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	return r.ofCluster(ctx, object.GetNamespace(), object.GetLabels()[clusterv1.ClusterNameLabel])
}

// snapshotToControlPlane maps an ETCDSnapshot to the RKEControlPlane of its cluster.
func (r *Reconciler) snapshotToControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	snapshot, is := object.(*rkev1.ETCDSnapshot)
	if !is {
		return nil
	}
	return r.ofCluster(ctx, snapshot.Namespace, snapshot.Spec.ClusterName)
}

// snapshotFound passes ETCDSnapshots whose file the cluster lists again. A restore may wait for that.
var snapshotFound = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(*rkev1.ETCDSnapshot)
		after, is := e.ObjectNew.(*rkev1.ETCDSnapshot)
		return was && is && before.Status.Missing && !after.Status.Missing
	},
}

// ofCluster maps the name of a Cluster to its RKEControlPlane.
func (r *Reconciler) ofCluster(ctx context.Context, namespace, name string) []ctrl.Request {
	return mapfuncs.OfCluster(ctx, r.Client, client.ObjectKey{Namespace: namespace, Name: name}, mapfuncs.ClusterToControlPlane)
}

// managementToControlPlane maps a management Cluster to the RKEControlPlane of its cluster.
func (r *Reconciler) managementToControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	key := ownership.Key(object)
	return r.ofCluster(ctx, key.Namespace, key.Name)
}

// tokensSuffix ends the name of the Secret with a cluster's tokens, after that of the RKEControlPlane, unless both are too long together.
var tokensSuffix = rkev1.ClusterStateSecretName("")

// secretToControlPlanes maps registration tokens by their namespace, plan Secrets and other Secrets of a cluster by their label, and all
// others by the references to them, and by their name where that is the one of a cluster's tokens.
func (r *Reconciler) secretToControlPlanes(ctx context.Context, object client.Object) []ctrl.Request {
	labels := object.GetLabels()
	if labels[managementv3.RegistrationTokenLabel] == "true" {
		management := &managementv3.Cluster{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: object.GetNamespace()}, management); err != nil {
			return nil
		}
		return r.managementToControlPlane(ctx, management)
	}
	// A kubeconfig Secret that somebody else has written may have no label.
	ofKubeconfig, _ := strings.CutSuffix(object.GetName(), "-"+string(secret.Kubeconfig))
	if ofKubeconfig == object.GetName() {
		ofKubeconfig = ""
	}
	for _, cluster := range []string{labels[rkev1.ClusterNameLabel], labels[clusterv1.ClusterNameLabel], ofKubeconfig} {
		if requests := r.ofCluster(ctx, object.GetNamespace(), cluster); len(requests) > 0 {
			return requests
		}
	}
	// Tokens that a user has restored may have no label either.
	var requests []ctrl.Request
	if controlPlane, ok := strings.CutSuffix(object.GetName(), tokensSuffix); ok {
		requests = mapfuncs.Request(client.ObjectKey{Namespace: object.GetNamespace(), Name: controlPlane})
	}
	if secret, ok := object.(*corev1.Secret); ok && strings.HasPrefix(string(secret.Type), "rke.cattle.io/") &&
		secret.Type != rkev1.AuthConfigSecretType {
		return requests
	}
	return append(requests, r.referringTo(ctx, render.KindSecret, object)...)
}

func (r *Reconciler) configMapToControlPlanes(ctx context.Context, object client.Object) []ctrl.Request {
	return r.referringTo(ctx, render.KindConfigMap, object)
}

// referringTo lists the RKEControlPlanes whose plans contain an object: their specification names it, or it names them. A pull Secret of
// the hub is in the plans of all.
func (r *Reconciler) referringTo(ctx context.Context, kind string, object client.Object) []ctrl.Request {
	if kind == render.KindSecret && object.GetNamespace() == r.Settings.SystemNamespace &&
		slices.Contains(r.Settings.PullSecrets, object.GetName()) {
		return r.controlPlanes(ctx)
	}
	requests := r.controlPlanes(ctx, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{indexReferences: referenceKey(kind, object.GetName())})
	if object.GetAnnotations()[rkev1.SyncBootstrapAnnotation] == "true" {
		for _, name := range rkev1.SplitList(object.GetAnnotations()[rkev1.AuthorizedObjectAnnotation]) {
			requests = append(requests, r.ofCluster(ctx, object.GetNamespace(), name)...)
		}
	}
	// A Secret for clusters of other namespaces names each as namespace/name.
	for _, entry := range rkev1.SplitList(object.GetAnnotations()[rkev1.AuthorizedSecretAnnotation]) {
		if namespace, name, found := strings.Cut(entry, "/"); found {
			requests = append(requests, r.ofCluster(ctx, namespace, name)...)
		}
	}
	return requests
}

// controlPlanes lists RKEControlPlanes.
func (r *Reconciler) controlPlanes(ctx context.Context, opts ...client.ListOption) []ctrl.Request {
	var list rkev1.RKEControlPlaneList
	if err := r.Client.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing RKEControlPlanes failed")
		return nil
	}
	requests := make([]ctrl.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// releaseData enqueues all RKEControlPlanes when the data of releases changes.
func (r *Reconciler) releaseData() source.Source {
	changes := make(chan event.GenericEvent, 1)
	if r.Releases != nil {
		r.Releases.OnChange(func() {
			select {
			case changes <- event.GenericEvent{Object: &rkev1.RKEControlPlane{}}:
			default: // the one that is in the channel stands for this one too
			}
		})
	}
	return source.Channel(changes, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []ctrl.Request {
		return r.controlPlanes(ctx)
	}))
}

// coalesceTime is how long a reconcile waits for more reports, since it reads all machines of a cluster.
const coalesceTime = 100 * time.Millisecond
