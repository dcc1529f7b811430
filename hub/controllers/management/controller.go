package management

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
	"github.com/drover-dev/drover/hub/controllers/apply"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/ownership"
)

const (
	// Finalizer holds an RKEControlPlane that has no Cluster of provisioning.cattle.io until its management Cluster is gone.
	Finalizer = "management.cattle.io/rkecontrolplane"

	fieldOwner = client.FieldOwner("drover-management")
)

// Reconciler gives RKEControlPlanes a management Cluster that a user wrote for Cluster API. For all others the controller of Clusters does.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache; a deletion asks it whether things are gone. It is set from the manager where it is nil.
	Live client.Reader

	keeper     *apply.Keeper
	departures Departures
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Live == nil {
		r.Live = mgr.GetAPIReader()
	}
	r.keeper = &apply.Keeper{Client: r.Client, Owner: fieldOwner}
	r.departures.Of = plainCluster
	err := ctrl.NewControllerManagedBy(mgr).
		Named("management").
		For(&rkev1.RKEControlPlane{}, builder.WithPredicates(r.departures.Note())).
		Watches(&managementv3.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.toControlPlane)).
		Watches(&managementv3.ClusterRegistrationToken{}, handler.EnqueueRequestsFromMapFunc(r.toControlPlane)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.toControlPlane)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the management controller: %w", err)
	}
	return nil
}

// toControlPlane maps what was made for a cluster of Cluster API to the cluster's control plane.
func (r *Reconciler) toControlPlane(ctx context.Context, o client.Object) []ctrl.Request {
	cluster, key := &clusterv1.Cluster{}, ownership.Key(o)
	if key.Name == "" || r.Client.Get(ctx, key, cluster) != nil {
		return nil
	}
	ref := cluster.Spec.ControlPlaneRef
	if ref.APIGroup != rkev1.GroupVersion.Group || ref.Kind != "RKEControlPlane" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}}}
}

// plainCluster names the cluster of a control plane that has no Cluster of provisioning.cattle.io.
func plainCluster(o client.Object) string {
	if controlPlane, ok := o.(*rkev1.RKEControlPlane); !ok || controlPlane.Spec.ManagementClusterName != "" {
		return ""
	}
	return o.GetLabels()[clusterv1.ClusterNameLabel]
}

// Reconcile makes the management Cluster, or removes it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	controlPlane := &rkev1.RKEControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, controlPlane); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("reading the RKEControlPlane: %w", err)
		}
		return ctrl.Result{}, r.departures.RemoveLeftovers(ctx, r.Client, r.Live, req.NamespacedName, &rkev1.RKEControlPlane{})
	}
	if controlPlane.Spec.ManagementClusterName != "" || IsMovedAway(controlPlane) {
		return ctrl.Result{}, nil
	}
	cluster, _, err := ownership.Cluster(ctx, r.Client, controlPlane)
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
	return ctrl.Result{}, r.reconcileNormal(ctx, controlPlane, Owner{Namespace: cluster.Namespace, Name: cluster.Name, UID: cluster.UID})
}

// reconcileNormal writes the name into an annotation before anything of that name exists, so that a hub that stops in between finds it again.
func (r *Reconciler) reconcileNormal(ctx context.Context, controlPlane *rkev1.RKEControlPlane, owner Owner) error {
	name := controlPlane.Annotations[rkev1.ManagementClusterNameAnnotation]
	if name == "" {
		name, err := owner.FreeName(ctx, r.Client)
		if err != nil {
			return err
		}
		return r.patch(ctx, controlPlane, func() {
			metav1.SetMetaDataAnnotation(&controlPlane.ObjectMeta, rkev1.ManagementClusterNameAnnotation, name)
		})
	}
	fault, err := owner.Check(ctx, r.Client, name)
	if err != nil {
		return err
	}
	if fault != nil {
		ctrl.LoggerFrom(ctx).Info("The management Cluster is not made", "reason", fault.Reason, "message", fault.Message)
		return nil
	}
	cluster := &managementv3.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: owner.Labels()},
		Spec:       managementv3.ClusterSpec{DisplayName: owner.Name, FleetWorkspaceName: owner.Namespace},
	}
	if err := r.keeper.Object(ctx, cluster); err != nil {
		return fmt.Errorf("writing the management Cluster: %w", err)
	}
	for _, object := range []client.Object{owner.NamespaceOf(cluster), owner.Token(name, managementv3.AgentTokenName, managementv3.AgentsPurpose)} {
		if err := r.keeper.Object(ctx, object); err != nil {
			return fmt.Errorf("writing what belongs to the management Cluster: %w", err)
		}
	}
	return nil
}

// reconcileDelete removes the management Cluster last: until the control plane's machines are gone, the agent may be the only way to them.
func (r *Reconciler) reconcileDelete(ctx context.Context, controlPlane *rkev1.RKEControlPlane) error {
	if !controllerutil.ContainsFinalizer(controlPlane, Finalizer) || len(controlPlane.Finalizers) > 1 {
		return nil
	}
	name := controlPlane.Annotations[rkev1.ManagementClusterNameAnnotation]
	// Its Cluster may be gone already, so that the label is compared with what the RKEControlPlane knows of itself.
	owner := Owner{Namespace: controlPlane.Namespace, Name: controlPlane.Labels[clusterv1.ClusterNameLabel]}
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

// isForeign tells whether the management Cluster that an RKEControlPlane names is that of a cluster with another control plane, or without one:
// then it goes with that, whatever the labels of this RKEControlPlane say.
func (r *Reconciler) isForeign(ctx context.Context, controlPlane *rkev1.RKEControlPlane, name string) (bool, error) {
	management := &managementv3.Cluster{}
	if name == "" {
		return false, nil
	}
	found, err := read(ctx, r.Live, name, management)
	if err != nil || !found {
		return false, err
	}
	owned, err := ownership.ClusterOf(ctx, r.Live, management)
	if err != nil || owned == nil {
		return false, err
	}
	return owned.ControlPlane == nil || owned.ControlPlane.UID != controlPlane.UID, nil
}

// remove deletes what was made for the owner.
func (r *Reconciler) remove(ctx context.Context, owner Owner, name string, object client.Object) error {
	if name == "" {
		return nil
	}
	found, err := read(ctx, r.Live, name, object)
	if err != nil || !found || !owner.Owns(object) || !object.GetDeletionTimestamp().IsZero() {
		return err
	}
	if err := r.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s: %w", object, name, err)
	}
	return nil
}

// patch writes a change of the metadata. It fails where somebody else has written in between: both may have changed the list of finalizers.
func (r *Reconciler) patch(ctx context.Context, controlPlane *rkev1.RKEControlPlane, change func()) error {
	before := client.MergeFromWithOptions(controlPlane.DeepCopy(), client.MergeFromWithOptimisticLock{})
	change()
	if err := r.Client.Patch(ctx, controlPlane, before, fieldOwner); err != nil {
		return fmt.Errorf("writing the metadata of the RKEControlPlane: %w", err)
	}
	return nil
}
