package machinerequest

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/pace"
	"github.com/drover-dev/drover/hub/util/predicates"
)

const (
	// fieldOwner is the name that hubs have always applied owner references with. Under another name these could not be removed any more.
	fieldOwner = client.FieldOwner("drover-registration")
	// requestLifetime is how long a machine request may wait; the gateway has given up by then.
	requestLifetime = time.Minute
	// maxSkew is by how much the hub's clock may be ahead of that of the API server, which dates requests. One that is older than that was
	// left by a hub that has ended.
	maxSkew = 15 * time.Minute
)

// Reconciler reconciles machine requests.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Live reads past the cache, which may not have seen a Machine that was created a moment ago; SetupWithManager sets it.
	Live client.Reader
	// Informers are those of the cache that Client reads from; SetupWithManager sets it. Without them the cache is not believed.
	Informers cache.Informers
	// Clock is the time; SetupWithManager sets it.
	Clock clock.PassiveClock

	// seen has the first sight of each Cluster, by its key.
	seen sync.Map
	// requested has the requestSight of each machine request, by its key.
	requested sync.Map
	// lists limits the time for lists past the cache.
	lists pace.Share
	// requests is a cache of its own with machine requests alone: the infrastructure provider may run without the controllers that need the
	// content of other Secrets.
	requests client.Reader
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Live, r.Informers, r.Clock = mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache(), clock.RealClock{}
	requests, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Field: fields.OneTermEqualSelector("type", rkev1.MachineRequestSecretType)},
		},
	})
	if err != nil {
		return fmt.Errorf("creating the cache of machine requests: %w", err)
	}
	if err := mgr.Add(onEveryReplica{requests}); err != nil {
		return fmt.Errorf("adding the cache of machine requests: %w", err)
	}
	r.requests = requests
	return ctrl.NewControllerManagedBy(mgr).
		Named("machinerequest").
		WatchesRawSource(source.Kind(requests, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToRequests), builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&clusterv1.Cluster{}, handler.Funcs{DeleteFunc: r.forget}).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// onEveryReplica is a cache that is filled on every replica. A cache with options for a kind, other than one without, would run on the
// leader only, while the controllers of all replicas wait for it, and end the hub if that takes too long.
type onEveryReplica struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (onEveryReplica) NeedLeaderElection() bool { return false }

// forget drops what is known of a Cluster that was deleted.
func (r *Reconciler) forget(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	r.seen.Delete(client.ObjectKeyFromObject(e.Object))
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
	return objects.List(ctx, r.requests, &corev1.SecretList{}, client.InNamespace(namespace))
}
