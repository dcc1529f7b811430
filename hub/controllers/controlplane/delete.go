package controlplane

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// reconcileDelete removes the control plane's Machines, and what the cluster was reached with when none is left. Cluster API deletes an
// RKEControlPlane after all workers and leaves control plane Machines to it, but those of MachineDeployments, which go with them.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) error {
	// Without its Cluster there are no Machines that it could delete: the name of one, which anybody may write, is not enough.
	if s.cluster == nil {
		return r.finishDelete(ctx, s)
	}
	var list clusterv1.MachineList
	err := r.Live.List(ctx, &list, client.InNamespace(s.controlPlane.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.clusterName()})
	if err != nil {
		return fmt.Errorf("listing the cluster's Machines: %w", err)
	}
	var left []string
	for i := range list.Items {
		m := &list.Items[i]
		if !isControlPlane(m) {
			continue
		}
		left = append(left, m.Name)
		if !m.DeletionTimestamp.IsZero() || inMachineSet(m) {
			continue
		}
		if err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		s.deleting = "Waiting for control plane machines to be deleted: " + few(left)
		return nil
	}
	return r.finishDelete(ctx, s)
}

// finishDelete lets the RKEControlPlane go.
func (r *Reconciler) finishDelete(ctx context.Context, s *scope) error {
	if err := r.deleteSecrets(ctx, s); err != nil {
		return err
	}
	s.deleting = "Nothing is left to be deleted"
	controllerutil.RemoveFinalizer(s.controlPlane, Finalizer)
	return nil
}

func isControlPlane(m *clusterv1.Machine) bool {
	_, is := m.Labels[clusterv1.MachineControlPlaneLabel]
	return is || m.Labels[rkev1.ControlPlaneRoleLabel] == "true"
}

// deleteSecrets deletes the credentials that were made for the cluster. A garbage collector would do so too, but later, and not every API
// server has one. What a user has brought stays.
func (r *Reconciler) deleteSecrets(ctx context.Context, s *scope) error {
	for _, name := range []string{
		secret.Name(s.clusterName(), secret.Kubeconfig), secret.Name(s.clusterName(), secret.ClusterCA),
		secret.Name(s.clusterName(), clientCAPurpose), rkev1.ClusterStateSecretName(s.controlPlane.Name),
	} {
		found := &corev1.Secret{}
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: name}, found)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Secret %s: %w", name, err)
		}
		if err != nil || !metav1.IsControlledBy(found, s.controlPlane) {
			continue
		}
		if err := r.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Secret %s: %w", name, err)
		}
	}
	return nil
}
