package importedkubeconfig

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/tunnelaccess"
)

const (
	fieldOwner = client.FieldOwner("drover-importedkubeconfig")
	// renewalCheck is how often the end of a token is looked at, from the cache; it is replaced ten days before.
	renewalCheck = 12 * time.Hour
)

// Reconcile makes the Secret when the cluster's agent has connected for the first time, and keeps it good from then on. A Secret that is not
// the Cluster's is left alone.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &provisioningv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	management := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if cluster.Spec.RKEConfig != nil || !cluster.DeletionTimestamp.IsZero() || management == "" {
		return ctrl.Result{}, nil
	}
	// The controller of Clusters says in the condition Created why it is refused; an agent that connects later brings another reconcile.
	if _, refusal, err := ownership.ManagementCluster(ctx, r.Client, req.NamespacedName, management); err != nil || refusal != nil {
		return ctrl.Result{}, err
	}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)}
	found := &corev1.Secret{}
	err := r.Cache.Get(ctx, key, found)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the kubeconfig Secret: %w", err)
	}
	missing := apierrors.IsNotFound(err)
	switch {
	case missing && !r.Access.Connected(management):
		return ctrl.Result{}, nil
	case missing:
		// The cache may be behind what this controller has written itself. A token is not made for nothing.
		if err := r.Client.Get(ctx, key, &corev1.Secret{}); !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		found = newSecret(key, cluster)
	case !metav1.IsControlledBy(found, cluster):
		return ctrl.Result{}, nil
	default:
		if good, err := r.good(ctx, found, management); err != nil || good {
			return ctrl.Result{RequeueAfter: renewalCheck}, err
		}
	}
	value, err := r.Access.Kubeconfig(ctx, cluster.Name, management, false)
	if err != nil {
		return ctrl.Result{}, err
	}
	found.Data = map[string][]byte{secret.KubeconfigDataName: value}
	if missing {
		err = r.Client.Create(ctx, found, fieldOwner)
	} else {
		err = r.Client.Update(ctx, found, fieldOwner)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the kubeconfig Secret: %w", err)
	}
	return ctrl.Result{RequeueAfter: tunnelaccess.Handover}, nil
}

// good tells whether a Secret can stay as it is, and revokes tokens that it held before.
func (r *Reconciler) good(ctx context.Context, found *corev1.Secret, management string) (bool, error) {
	value := found.Data[secret.KubeconfigDataName]
	if !r.Access.Leads(value, management) {
		return false, nil
	}
	good, err := r.Access.Good(ctx, value, management, false)
	if err != nil || !good {
		return false, err
	}
	return true, r.Access.Revoke(ctx, value, management)
}

func newSecret(key client.ObjectKey, cluster *provisioningv1.Cluster) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, provisioningv1.GroupVersion.WithKind("Cluster"))},
		},
		Type: clusterv1.ClusterSecretType,
	}
}
