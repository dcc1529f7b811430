package clusterregistrationtoken

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/objects"
)

const fieldOwner = client.FieldOwner("drover-registration")

// Reconciler reconciles ClusterRegistrationTokens.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Live reads past the cache, which holds only the metadata of Secrets; SetupWithManager sets it.
	Live client.Reader
	// Settings have the URL and the authorities that commands contain.
	Settings settings.Settings
	// Issuer makes the tokens.
	Issuer *tokens.Issuer
	// Clock is the time; SetupWithManager sets it.
	Clock clock.PassiveClock
}

// specOrMetadataChanged drops changes of a status.
var specOrMetadataChanged = predicate.Or(
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Live, r.Clock = mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}
	changed := builder.WithPredicates(specOrMetadataChanged)
	return ctrl.NewControllerManagedBy(mgr).
		Named("clusterregistrationtoken").
		For(&managementv3.ClusterRegistrationToken{}).
		Owns(&corev1.Secret{}, builder.OnlyMetadata).
		Watches(&managementv3.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.managementToTokens), changed).
		Watches(&provisioningv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToTokens), changed).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// managementToTokens maps a management Cluster to the tokens in its namespace.
func (r *Reconciler) managementToTokens(ctx context.Context, o client.Object) []ctrl.Request {
	return r.tokensIn(ctx, o.GetName())
}

// clusterToTokens maps a Cluster, whose environment variables are in the commands, to its tokens.
func (r *Reconciler) clusterToTokens(ctx context.Context, o client.Object) []ctrl.Request {
	return r.tokensIn(ctx, o.GetAnnotations()[rkev1.ManagementClusterNameAnnotation])
}

func (r *Reconciler) tokensIn(ctx context.Context, namespace string) []ctrl.Request {
	if namespace == "" {
		return nil
	}
	return objects.List(ctx, r.Client, &managementv3.ClusterRegistrationTokenList{}, client.InNamespace(namespace))
}
