package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// removal is a step of a deletion. It returns what it waits for; nil when the next step may start.
type removal func(context.Context, *scope) (*cause.Cause, error)

// reconcileDelete takes the steps in order: first the namespace with the registration tokens, so that no machine registers any more; then
// Cluster API deletes the Machines in the right order, for which it needs everything else; then what it may have left; and last the
// management Cluster, whose name is needed to find the rest. An imported cluster has no other objects. No step depends on anything but what
// it deletes, so that a Cluster of which only a part was created can be deleted too. All reads are live, but those of names
// that are only shown: the cache may not have seen yet what was created just before.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.cluster, Finalizer) {
		if !objects.HeldByRancher(s.cluster) {
			return nil
		}
		// It was deleted while it was paused, so that the hub has not taken over its management Cluster either.
		if err := r.reconcileName(ctx, s); err != nil {
			return s.notRemoved(err)
		}
	}
	if controllerutil.ContainsFinalizer(s.cluster, metav1.FinalizerOrphanDependents) {
		// Afterwards, the Cluster API Cluster is not the Cluster's any more, and stays with its machines.
		s.removal = cause.New("WaitingForGarbageCollector", "Waiting for the garbage collector to take the Cluster out of the owners of its "+
			"objects, which stay: it was deleted with the propagation policy Orphan")
		return nil
	}
	steps := []removal{
		r.closeRegistration,
		r.removeClusterAPI,
		r.removeMachines,
		r.removeProviderObjects,
		r.removeCredentials,
		r.removeNamespace,
		r.removeManagement,
		r.removeTimeline,
	}
	mine := false
	if !s.imported() {
		var err error
		if mine, err = r.isOwnCluster(ctx, s); err != nil {
			return s.notRemoved(err)
		}
	}
	if !mine {
		steps = []removal{r.removeNamespace, r.removeManagement}
	}
	for _, step := range steps {
		waiting, err := step(ctx, s)
		if err != nil {
			return s.notRemoved(err)
		}
		if waiting != nil {
			s.removal = waiting
			return nil
		}
	}
	controllerutil.RemoveFinalizer(s.cluster, Finalizer)
	objects.DropRancherFinalizers(s.cluster)
	return nil
}

func (s *scope) notRemoved(err error) error {
	s.removal = cause.New("Error", "Deleting the objects of the cluster: %s; retrying", message.Stable(err))
	return err
}

// isOwnCluster is false where the Cluster API Cluster of this name was made by somebody else. Then nothing that has its name is the
// Cluster's.
func (r *Reconciler) isOwnCluster(ctx context.Context, s *scope) (bool, error) {
	_, taken, err := ownership.ClusterAPI(ctx, r.Live, s.cluster)
	return taken == nil, err
}

// removeClusterAPI deletes the Cluster API Cluster. Its controller deletes workers, then the RKEControlPlane with its Machines, then the
// infrastructure.
func (r *Reconciler) removeClusterAPI(ctx context.Context, s *scope) (*cause.Cause, error) {
	capi := &clusterv1.Cluster{}
	gone, err := r.remove(ctx, client.ObjectKeyFromObject(s.cluster), capi)
	if gone || err != nil {
		return nil, err
	}
	if ptr.Deref(capi.Spec.Paused, false) {
		return cause.New("ClusterPaused", "Waiting for the Cluster API Cluster to be unpaused: its spec.paused is true"), nil
	}
	if annotations.HasPaused(capi) {
		return cause.New("ClusterPaused", "Waiting for the Cluster API Cluster to be unpaused: it has the annotation %s",
			clusterv1.PausedAnnotation), nil
	}
	controlPlane, _, err := ownership.ControlPlane(ctx, r.Client, capi)
	if err != nil {
		return nil, err
	}
	if controlPlane != nil && annotations.HasPaused(controlPlane) {
		return cause.New("ClusterPaused", "Waiting for RKEControlPlane %s to be unpaused: it has the annotation %s", controlPlane.Name,
			clusterv1.PausedAnnotation), nil
	}
	machines, paused, err := r.machineNames(ctx, s)
	if err != nil {
		return nil, err
	}
	message := "Waiting for Cluster API to delete the cluster"
	if deleting := conditions.Get(capi, clusterv1.DeletingCondition); deleting != nil && deleting.Message != "" {
		message += ": " + deleting.Message
	}
	if len(machines) > 0 {
		message += fmt.Sprintf("; machines left: %s", names(machines))
	}
	if len(paused) > 0 {
		message += fmt.Sprintf("; held by their annotation %s: %s", clusterv1.PausedAnnotation, names(paused))
	}
	return cause.New("WaitingForClusterAPI", "%s", message), nil
}

// credentialTypes are the types of Secrets that the hub creates for a cluster and its machines.
var credentialTypes = []corev1.SecretType{
	rkev1.MachinePlanSecretType, rkev1.BootstrapSecretType, rkev1.MachineStateSecretType, rkev1.ClusterStateSecretType,
	corev1.SecretTypeServiceAccountToken,
}

// removeCredentials deletes the credentials of all machines of the cluster, whether or not a garbage collector runs.
func (r *Reconciler) removeCredentials(ctx context.Context, s *scope) (*cause.Cause, error) {
	of := []client.DeleteAllOfOption{client.InNamespace(s.cluster.Namespace), client.MatchingLabels{rkev1.ClusterNameLabel: s.cluster.Name}}
	for _, object := range []client.Object{&rbacv1.RoleBinding{}, &rbacv1.Role{}} {
		if err := r.Client.DeleteAllOf(ctx, object, of...); err != nil {
			return nil, fmt.Errorf("deleting the %T of the cluster: %w", object, err)
		}
	}
	for _, secretType := range credentialTypes {
		if err := r.Client.DeleteAllOf(ctx, &corev1.Secret{}, append(of, client.MatchingFields{"type": string(secretType)})...); err != nil {
			return nil, fmt.Errorf("deleting the Secrets of type %s of the cluster: %w", secretType, err)
		}
	}
	if err := r.Client.DeleteAllOf(ctx, &corev1.ServiceAccount{}, of...); err != nil {
		return nil, fmt.Errorf("deleting the ServiceAccounts of the cluster: %w", err)
	}
	return nil, nil
}

// closeRegistration starts to delete the namespace and does not wait for it.
func (r *Reconciler) closeRegistration(ctx context.Context, s *scope) (*cause.Cause, error) {
	_, err := r.removeNamespace(ctx, s)
	return nil, err
}

// removeNamespace deletes the management Cluster's namespace, with its registration tokens and machine requests.
func (r *Reconciler) removeNamespace(ctx context.Context, s *scope) (*cause.Cause, error) {
	name := s.cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	namespace := &corev1.Namespace{}
	gone, err := r.removeOwn(ctx, s, name, namespace)
	if gone || err != nil {
		return nil, err
	}
	message := fmt.Sprintf("Waiting for Namespace %s with the registration tokens to be deleted", name)
	for _, condition := range namespace.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && condition.Message != "" {
			message += ": " + condition.Message
		}
	}
	return cause.New(reasons.WaitingForNamespace, "%s", message), nil
}

func (r *Reconciler) removeManagement(ctx context.Context, s *scope) (*cause.Cause, error) {
	name := s.cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	gone, err := r.removeOwn(ctx, s, name, &managementv3.Cluster{})
	if gone || err != nil {
		return nil, err
	}
	return cause.New(reasons.WaitingForManagementCluster, "Waiting for management Cluster %s to be deleted", name), nil
}

// removeTimeline deletes the timeline, which records the deletion until now.
func (r *Reconciler) removeTimeline(ctx context.Context, s *scope) (*cause.Cause, error) {
	return nil, timelines.Delete(ctx, r.Client, r.Live, client.ObjectKeyFromObject(s.cluster))
}

// removeOwn deletes a cluster-scoped object if it was created for this Cluster; one that was not counts as gone.
func (r *Reconciler) removeOwn(ctx context.Context, s *scope, name string, object client.Object) (gone bool, err error) {
	if name == "" {
		return true, nil
	}
	key := types.NamespacedName{Name: name}
	found, err := objects.Get(ctx, r.Live, key, object)
	if err != nil {
		return false, err
	}
	if !found || !ownerOf(s.cluster).Owns(object) {
		return true, nil
	}
	return r.remove(ctx, key, object)
}

// remove deletes an object, unless it is being deleted already, and returns whether it is gone.
func (r *Reconciler) remove(ctx context.Context, key client.ObjectKey, object client.Object) (gone bool, err error) {
	found, err := objects.Get(ctx, r.Live, key, object)
	if err != nil || !found {
		return !found && err == nil, err
	}
	if !object.GetDeletionTimestamp().IsZero() {
		return false, objects.ReleaseFromRancher(ctx, r.Client, object, fieldOwner)
	}
	return false, objects.Delete(ctx, r.Client, object, client.Preconditions{UID: new(object.GetUID())})
}

// machineNames are the names of the cluster's Machines, and of those that are paused, by what the cache has.
func (r *Reconciler) machineNames(ctx context.Context, s *scope) (all, paused []string, _ error) {
	var list clusterv1.MachineList
	err := r.Client.List(ctx, &list, client.InNamespace(s.cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the cluster's Machines: %w", err)
	}
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
		if annotations.HasPaused(&list.Items[i]) {
			paused = append(paused, list.Items[i].Name)
		}
	}
	return all, paused, nil
}

// names lists up to five names.
func names(list []string) string {
	slices.Sort(list)
	return message.JoinNames(list, 5)
}
