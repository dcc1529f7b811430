// Package importedkubeconfig keeps the kubeconfig Secret of imported clusters. The hub has no authority over such a cluster and knows no
// server of it, so that the kubeconfig leads through the tunnel of the cluster's agent, and may there do what the agent's manifest grants to
// the hub's controllers. It must not look at clusters that the hub has made; their control plane's controller provides for them.
package importedkubeconfig

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/tunnelaccess"
)

// Reconciler reconciles Clusters of provisioning.cattle.io without an rkeConfig.
type Reconciler struct {
	// Client reads Secrets from the API server; the manager's, where unset.
	Client client.Client
	// Cache reads Secrets with the content of kubeconfigs; the manager's, where unset.
	Cache client.Reader
	// Access makes the kubeconfigs.
	Access *tunnelaccess.Access
}

// SetupWithManager registers the controller. That an agent has connected is seen by the condition Connected of its Cluster.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Cache == nil {
		r.Cache = mgr.GetCache()
	}
	imported := predicate.NewPredicateFuncs(func(o client.Object) bool {
		cluster, ok := o.(*provisioningv1.Cluster)
		return ok && cluster.Spec.RKEConfig == nil
	})
	revoked := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("importedkubeconfig").
		For(&provisioningv1.Cluster{}, builder.WithPredicates(imported)).
		Owns(&corev1.Secret{}).
		Watches(&managementv3.Token{}, handler.EnqueueRequestsFromMapFunc(r.tokenToCluster), builder.WithPredicates(revoked)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the importedkubeconfig controller: %w", err)
	}
	return nil
}

// tokenToCluster maps a Token of the hub's own to the Cluster whose kubeconfig may hold it.
func (r *Reconciler) tokenToCluster(ctx context.Context, o client.Object) []ctrl.Request {
	name := tunnelaccess.ClusterOf(o)
	if name == "" {
		return nil
	}
	management := &managementv3.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, management); err != nil {
		return nil
	}
	return []ctrl.Request{{NamespacedName: ownership.Key(management)}}
}
