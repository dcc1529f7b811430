package machinerequest

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/predicates"
)

const (
	// fieldOwner is the name that hubs have always applied owner references with. Under another name these could not be removed any more.
	fieldOwner = client.FieldOwner("drover-registration")
	// requestLifetime is how long a machine request may wait; the gateway has given up by then.
	requestLifetime = time.Minute
)

// Reconciler reconciles machine requests.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Live reads past the cache, which may not have seen a Machine that was created a moment ago; SetupWithManager sets it.
	Live client.Reader
	// Clock is the time; SetupWithManager sets it.
	Clock clock.PassiveClock

	// requests is the manager's cache, which has the content of machine requests; Client reads Secrets past it.
	requests client.Reader
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Live, r.Clock = mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}
	r.requests = mgr.GetCache()
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.Secret{}, builder.WithPredicates(predicate.NewPredicateFuncs(isRequest))).
		Named("machinerequest").
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToRequests), builder.WithPredicates(predicates.ClusterChanged)).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

func isRequest(o client.Object) bool {
	secret, ok := o.(*corev1.Secret)
	return ok && secret.Type == rkev1.MachineRequestSecretType
}

// clusterToRequests maps a Cluster to the requests that may be waiting for it to be created.
func (r *Reconciler) clusterToRequests(ctx context.Context, o client.Object) []ctrl.Request {
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
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list machine requests", "namespace", namespace)
	}
	var requests []ctrl.Request
	for i := range secrets.Items {
		if isRequest(&secrets.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&secrets.Items[i])})
		}
	}
	return requests
}
