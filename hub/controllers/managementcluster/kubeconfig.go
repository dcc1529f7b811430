package managementcluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// renewalCheck is how often the expiry of the token is checked, from the cache; the token is replaced ten days before it.
const renewalCheck = 12 * time.Hour

// reconcileKubeconfig creates the kubeconfig Secret of an imported cluster when its agent has connected for the first time, and replaces
// its content before it becomes invalid. The hub has no authority over such a cluster and no address of it: the kubeconfig leads through
// the tunnel, with the rights that the agent's manifest grants to the hub's controllers. A Secret that the Cluster does not own is left
// alone, and none is created where Cluster API would take it for that of its own Cluster of this name.
func (r *Reconciler) reconcileKubeconfig(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.imported() || !s.cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cluster, management := s.cluster, s.management.Name
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)}
	stored := &corev1.Secret{}
	exists, err := objects.Get(ctx, r.Secrets, key, stored)
	switch {
	case err != nil || !exists && !r.Access.Connected(management):
		return ctrl.Result{}, err
	case !exists:
		// The cache may not have seen the Secret yet; no token is issued in vain.
		if found, err := objects.Get(ctx, r.Client, key, &corev1.Secret{}); found || err != nil {
			return ctrl.Result{}, err
		}
		capi := &clusterv1.Cluster{}
		if found, err := objects.Get(ctx, r.Client, client.ObjectKeyFromObject(cluster), capi); found || err != nil {
			if found {
				ctrl.LoggerFrom(ctx).Info("Not creating the kubeconfig Secret", "message", ownership.NameTaken(capi).Message)
			}
			return ctrl.Result{RequeueAfter: renewalCheck}, err
		}
		stored = newKubeconfigSecret(key, cluster)
	case !metav1.IsControlledBy(stored, cluster):
		return ctrl.Result{}, nil
	default:
		if valid, err := r.kubeconfigValid(ctx, stored, management); err != nil || valid {
			return ctrl.Result{RequeueAfter: renewalCheck}, err
		}
	}
	value, err := r.Access.Kubeconfig(ctx, cluster.Name, management, false)
	if err != nil {
		return ctrl.Result{}, err
	}
	stored.Data = map[string][]byte{secret.KubeconfigDataName: value}
	if exists {
		err = r.Client.Update(ctx, stored, fieldOwner)
	} else {
		err = r.Client.Create(ctx, stored, fieldOwner)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the kubeconfig Secret: %w", err)
	}
	return ctrl.Result{RequeueAfter: tunnelaccess.Handover}, nil
}

// kubeconfigValid returns whether the content need not be replaced yet. If so, it revokes the tokens that the Secret held before.
func (r *Reconciler) kubeconfigValid(ctx context.Context, stored *corev1.Secret, management string) (bool, error) {
	value := stored.Data[secret.KubeconfigDataName]
	if !r.Access.UsesTunnel(value, management) {
		return false, nil
	}
	valid, err := r.Access.Good(ctx, value, management, false)
	if err != nil || !valid {
		return false, err
	}
	return true, r.Access.Revoke(ctx, value, management)
}

func newKubeconfigSecret(key client.ObjectKey, cluster *provisioningv1.Cluster) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, provisioningv1.GroupVersion.WithKind("Cluster"))},
		},
		Type: clusterv1.ClusterSecretType,
	}
}
