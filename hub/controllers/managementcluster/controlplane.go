package managementcluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/move"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// Finalizer keeps an RKEControlPlane that has no Cluster of provisioning.cattle.io until its management Cluster is deleted.
const Finalizer = "management.cattle.io/rkecontrolplane"

// controlPlaneReconciler creates the management Clusters of RKEControlPlanes that were written for Cluster API.
type controlPlaneReconciler struct {
	client client.Client
	// live reads past the cache; a deletion asks it whether objects are gone.
	live client.Reader

	ssa         *ssa.Cache
	moveCleanup move.Cleanup
}

func (r *controlPlaneReconciler) setup(mgr ctrl.Manager, opts controller.Options) error {
	r.ssa = &ssa.Cache{Client: r.client, FieldOwner: fieldOwner}
	r.moveCleanup = move.Cleanup{Client: r.client, Live: r.live, ClusterName: standaloneClusterName}
	return ctrl.NewControllerManagedBy(mgr).
		Named("managementcluster-rkecontrolplane").
		For(&rkev1.RKEControlPlane{}, builder.WithPredicates(r.moveCleanup.Predicate())).
		Watches(&managementv3.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.toControlPlane)).
		Watches(&managementv3.ClusterRegistrationToken{}, handler.EnqueueRequestsFromMapFunc(r.toControlPlane)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.toControlPlane)).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// toControlPlane maps an object with the labels of an owner to the control plane of that Cluster API Cluster.
func (r *controlPlaneReconciler) toControlPlane(ctx context.Context, o client.Object) []ctrl.Request {
	return mapfuncs.OfCluster(ctx, r.client, ownership.Key(o), mapfuncs.ClusterToControlPlane)
}

// standaloneClusterName is the name of the cluster of a control plane that has no Cluster of provisioning.cattle.io; else empty.
func standaloneClusterName(o client.Object) string {
	if controlPlane, ok := o.(*rkev1.RKEControlPlane); !ok || controlPlane.Spec.ManagementClusterName != "" {
		return ""
	}
	return o.GetLabels()[clusterv1.ClusterNameLabel]
}

// Reconcile creates the management Cluster, or deletes it.
func (r *controlPlaneReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	controlPlane := &rkev1.RKEControlPlane{}
	found, err := objects.Get(ctx, r.client, req.NamespacedName, controlPlane)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found {
		r.ssa.Forget(req.NamespacedName)
		return ctrl.Result{}, r.moveCleanup.Run(ctx, req.NamespacedName, controlPlane)
	}
	if controlPlane.Spec.ManagementClusterName != "" || move.IsMovedAway(controlPlane) {
		return ctrl.Result{}, nil
	}
	cluster, _, err := ownership.Cluster(ctx, r.client, controlPlane)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !controlPlane.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.reconcileDelete(ctx, controlPlane)
	}
	if cluster == nil || annotations.IsPaused(cluster, controlPlane) {
		return ctrl.Result{}, nil
	}
	if !controllerutil.ContainsFinalizer(controlPlane, Finalizer) {
		return ctrl.Result{}, r.patch(ctx, controlPlane, func() { controllerutil.AddFinalizer(controlPlane, Finalizer) })
	}
	owner := ownership.ManagementOwner{Namespace: cluster.Namespace, Name: cluster.Name, UID: cluster.UID}
	return ctrl.Result{}, r.reconcileNormal(ctx, controlPlane, owner)
}

// reconcileNormal writes the name to an annotation before it creates anything of that name, so that a hub that stops in between finds it.
func (r *controlPlaneReconciler) reconcileNormal(
	ctx context.Context, controlPlane *rkev1.RKEControlPlane, owner ownership.ManagementOwner,
) error {
	name := controlPlane.Annotations[rkev1.ManagementClusterNameAnnotation]
	if name == "" {
		name, err := owner.FreeName(ctx, r.client)
		if err != nil {
			return err
		}
		return r.patch(ctx, controlPlane, func() {
			metav1.SetMetaDataAnnotation(&controlPlane.ObjectMeta, rkev1.ManagementClusterNameAnnotation, name)
		})
	}
	fault, err := owner.Check(ctx, r.client, name)
	if err != nil {
		return err
	}
	if fault != nil {
		ctrl.LoggerFrom(ctx).Info("Not creating the management Cluster", "reason", fault.Reason, "message", fault.Message)
		return nil
	}
	cluster := &managementv3.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: owner.Labels()},
		Spec:       managementv3.ClusterSpec{DisplayName: owner.Name, FleetWorkspaceName: owner.Namespace},
	}
	if err := r.ssa.Apply(ctx, client.ObjectKeyFromObject(controlPlane), cluster); err != nil {
		return fmt.Errorf("writing the management Cluster: %w", err)
	}
	for _, object := range []client.Object{owner.NamespaceOf(cluster), owner.Token(name, managementv3.AgentTokenName,
		managementv3.AgentsPurpose)} {
		if err := r.ssa.Apply(ctx, client.ObjectKeyFromObject(controlPlane), object); err != nil {
			return fmt.Errorf("writing %T of the management Cluster: %w", object, err)
		}
	}
	return nil
}

// reconcileDelete deletes the management Cluster last: until the Machines are gone, the cluster may be reachable only through its agent.
func (r *controlPlaneReconciler) reconcileDelete(ctx context.Context, controlPlane *rkev1.RKEControlPlane) error {
	if !controllerutil.ContainsFinalizer(controlPlane, Finalizer) || len(controlPlane.Finalizers) > 1 {
		return nil
	}
	name := controlPlane.Annotations[rkev1.ManagementClusterNameAnnotation]
	// The Cluster may be gone already; its name is still in the label.
	owner := ownership.ManagementOwner{Namespace: controlPlane.Namespace, Name: controlPlane.Labels[clusterv1.ClusterNameLabel]}
	foreign, err := r.isForeign(ctx, controlPlane, name)
	if err != nil {
		return err
	}
	if foreign {
		name = ""
	}
	for _, object := range []client.Object{&corev1.Namespace{}, &managementv3.Cluster{}} {
		if err := r.remove(ctx, owner, name, object); err != nil {
			return err
		}
	}
	return client.IgnoreNotFound(r.patch(ctx, controlPlane, func() { controllerutil.RemoveFinalizer(controlPlane, Finalizer) }))
}

// isForeign returns whether the management Cluster that an RKEControlPlane names belongs to a cluster with another control plane, or with
// none. It must not be deleted with this one then, whatever the labels of this RKEControlPlane say.
func (r *controlPlaneReconciler) isForeign(ctx context.Context, controlPlane *rkev1.RKEControlPlane, name string) (bool, error) {
	management := &managementv3.Cluster{}
	if name == "" {
		return false, nil
	}
	found, err := objects.Get(ctx, r.live, client.ObjectKey{Name: name}, management)
	if err != nil || !found {
		return false, err
	}
	owned, err := ownership.ClusterOf(ctx, r.live, management)
	if err != nil || owned == nil {
		return false, err
	}
	return owned.ControlPlane == nil || owned.ControlPlane.UID != controlPlane.UID, nil
}

// remove deletes an object if it was created for the owner.
func (r *controlPlaneReconciler) remove(ctx context.Context, owner ownership.ManagementOwner, name string, object client.Object) error {
	if name == "" {
		return nil
	}
	found, err := objects.Get(ctx, r.live, client.ObjectKey{Name: name}, object)
	if err != nil || !found || !owner.Owns(object) || !object.GetDeletionTimestamp().IsZero() {
		return err
	}
	return objects.Delete(ctx, r.client, object)
}

// patch writes a change of the metadata. It fails with a conflict if the object has changed since: both may have changed the finalizers.
func (r *controlPlaneReconciler) patch(ctx context.Context, controlPlane *rkev1.RKEControlPlane, change func()) error {
	before := client.MergeFromWithOptions(controlPlane.DeepCopy(), client.MergeFromWithOptimisticLock{})
	change()
	if err := r.client.Patch(ctx, controlPlane, before, fieldOwner); err != nil {
		return fmt.Errorf("writing the metadata of the RKEControlPlane: %w", err)
	}
	return nil
}
