package rkecontrolplane

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/access/kubeconfig"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// rancherTokenKey is the key of a kubeconfig Secret in which Rancher has its token once more.
const rancherTokenKey = "token"

// isKubeconfigOfRancher reports whether Rancher has made a kubeconfig Secret for the Cluster. It leads to Rancher, which does not run
// beside a hub: nothing would reach the cluster. The cache does not hold the content of such a Secret.
func (r *Reconciler) isKubeconfigOfRancher(ctx context.Context, s *scope, found *corev1.Secret) (bool, error) {
	if s.management == "" || !ownership.OfProvisioningCluster(found, s.cluster.Name) ||
		!ownership.OfProvisioningCluster(s.cluster, s.cluster.Name) {
		return false, nil
	}
	live := &corev1.Secret{}
	exists, err := objects.Get(ctx, r.Client, client.ObjectKeyFromObject(found), live)
	if err != nil || !exists || live.UID != found.UID || len(live.Data[rancherTokenKey]) == 0 {
		return false, err
	}
	config, err := kubeconfig.RESTConfig(live.Data[secret.KubeconfigDataName])
	if err != nil {
		return false, nil //nolint:nilerr // the caller says what is wrong with it
	}
	return config.BearerToken == string(live.Data[rancherTokenKey]) && strings.HasSuffix(config.Host, "/k8s/clusters/"+s.management), nil
}

// replaceKubeconfig puts a kubeconfig of the hub in the place of that of Rancher, as soon as it leads somewhere. The type of a Secret
// cannot be changed.
func (r *Reconciler) replaceKubeconfig(ctx context.Context, s *scope, found *corev1.Secret) error {
	if servers, wait := s.servers(); len(servers) == 0 && !r.Access.Connected(s.management) {
		s.kubeconfig = wait
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Replacing the kubeconfig of Rancher", "Secret", client.ObjectKeyFromObject(found))
	err := r.Client.Delete(ctx, found.DeepCopy(), client.Preconditions{UID: &found.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the kubeconfig Secret of Rancher: %w", err)
	}
	return r.createKubeconfig(ctx, s, found.Name)
}
