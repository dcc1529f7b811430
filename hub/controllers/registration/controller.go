package registration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/predicates"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/hub/tokens"
)

const fieldOwner = client.FieldOwner("drover-registration")

// Reconciler holds two controllers: one of ClusterRegistrationTokens, one of machine requests.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache, in which Secrets are by their metadata only. It is set from the manager where it is nil.
	Live client.Reader
	// Settings tell machines where the hub is.
	Settings settings.Settings
	// Issuer makes the hub's own tokens.
	Issuer *tokens.Issuer
	// Clock is the time; nil means the real one.
	Clock clock.PassiveClock
}

// SetupWithManager registers both controllers.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Live == nil {
		r.Live = mgr.GetAPIReader()
	}
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	registrations := &tokenReconciler{Reconciler: r}
	if err := registrations.setup(mgr, opts); err != nil {
		return fmt.Errorf("setting up the controller of registration tokens: %w", err)
	}
	requests := &requestReconciler{Reconciler: r}
	if err := requests.setup(mgr, opts); err != nil {
		return fmt.Errorf("setting up the controller of machine requests: %w", err)
	}
	return nil
}

type tokenReconciler struct{ *Reconciler }

// notStatus drops changes of a status, which says nothing about tokens.
var notStatus = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

func (r *tokenReconciler) setup(mgr ctrl.Manager, opts controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("registrationtoken").
		For(&managementv3.ClusterRegistrationToken{}).
		Owns(&corev1.Secret{}, builder.OnlyMetadata).
		Watches(&managementv3.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.managementToTokens), builder.WithPredicates(notStatus)).
		Watches(&provisioningv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToTokens), builder.WithPredicates(notStatus)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
}

// managementToTokens maps a management Cluster to the tokens in its namespace.
func (r *tokenReconciler) managementToTokens(ctx context.Context, o client.Object) []ctrl.Request {
	return r.tokensIn(ctx, o.GetName())
}

// clusterToTokens maps a Cluster, whose environment variables are in the commands, to its tokens.
func (r *tokenReconciler) clusterToTokens(ctx context.Context, o client.Object) []ctrl.Request {
	return r.tokensIn(ctx, o.GetAnnotations()[rkev1.ManagementClusterNameAnnotation])
}

func (r *tokenReconciler) tokensIn(ctx context.Context, namespace string) []ctrl.Request {
	if namespace == "" {
		return nil
	}
	var list managementv3.ClusterRegistrationTokenList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the registration tokens of a cluster", "namespace", namespace)
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// requestLifetime is how long a machine request may wait; the gateway has given up by then.
const requestLifetime = time.Minute

// requestReconciler has a cache of its own that holds machine requests and nothing else, since their data is needed.
type requestReconciler struct {
	*Reconciler
	requests client.Reader
}

func (r *requestReconciler) setup(mgr ctrl.Manager, opts controller.Options) error {
	requests, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Field: fields.OneTermEqualSelector("type", rkev1.MachineRequestSecretType)},
		},
	})
	if err != nil {
		return fmt.Errorf("making the cache of machine requests: %w", err)
	}
	if err := mgr.Add(requests); err != nil {
		return fmt.Errorf("adding the cache of machine requests: %w", err)
	}
	r.requests = requests
	return ctrl.NewControllerManagedBy(mgr).
		Named("machinerequest").
		WatchesRawSource(source.Kind(requests, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToRequests), builder.WithPredicates(predicates.ClusterChanged)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
}

// clusterToRequests lets requests go on that came before their cluster was there.
func (r *requestReconciler) clusterToRequests(ctx context.Context, o client.Object) []ctrl.Request {
	var cluster provisioningv1.Cluster
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), &cluster); err != nil {
		return nil
	}
	namespace := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if namespace == "" {
		return nil
	}
	var secrets corev1.SecretList
	if err := r.requests.List(ctx, &secrets, client.InNamespace(namespace)); err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range secrets.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&secrets.Items[i])})
	}
	return requests
}
