// Package agentupgrade reconciles Clusters of provisioning.cattle.io with spec.redeploySystemAgentGeneration: it requests upgrades of the
// system-agents of their machines, in the key agent-upgrade of the plan Secrets, and reports in conditions of Cluster, RKEBootstrap and
// Machine how far they are. How many are upgraded at a time is decided by hub/plan/agentupgrade. It writes nothing where nothing changes,
// and of a Cluster without a generation it only removes the condition.
package agentupgrade

import (
	"bytes"
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/paused"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/hub/util/predicates"
	"github.com/drover-dev/drover/plans"
)

const (
	controllerName = "agentupgrade"
	fieldOwner     = client.FieldOwner("drover-" + controllerName)
)

// Reconciler reconciles Clusters. Signer and Checksums must be set.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Cache reads Machines, RKEBootstraps, and plan Secrets with their content; SetupWithManager sets it.
	Cache client.Reader
	// Signer signs the upgrades.
	Signer *signing.Signer
	// Checksums returns the hex SHA-256 of the agents that this hub hands out, by architecture.
	Checksums func() (map[string]string, error)
}

// SetupWithManager registers the controller, with the clients of the manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Cache = mgr.GetClient(), mgr.GetCache()
	return ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&provisioningv1.Cluster{}, builder.WithPredicates(predicates.OnUpdate(func(before, after *provisioningv1.Cluster) bool {
			return predicates.MetadataChanged(before, after)
		}))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ByLabel(rkev1.ClusterNameLabel)),
			builder.WithPredicates(predicate.And(predicate.NewPredicateFuncs(plansecrets.IsPlanSecret), agentChanged))).
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(paused.Unpaused)).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// agentChanged drops updates of plan Secrets that are about plans.
var agentChanged = predicates.OnUpdate(func(before, after *corev1.Secret) bool {
	return !bytes.Equal(before.Data[plans.KeyAgentStatus], after.Data[plans.KeyAgentStatus]) ||
		!bytes.Equal(before.Data[plans.KeyAgentUpgrade], after.Data[plans.KeyAgentUpgrade]) ||
		isServer(before) != isServer(after)
})

// isServer reports whether a plan Secret is that of a machine with etcd or a control plane.
func isServer(secret *corev1.Secret) bool {
	return secret.Labels[rkev1.EtcdRoleLabel] == "true" || secret.Labels[rkev1.ControlPlaneRoleLabel] == "true"
}
