package embedded

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	serviceaccounts "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/drover-dev/drover/hub/util/intern"
)

const (
	// resync is upstream's.
	resync = 12 * time.Hour
	// gcDiscoveryPeriod is how soon the garbage collector notices a new kind. Upstream's 30 s would make the first minute after the CRDs
	// are installed a time in which nothing is collected.
	gcDiscoveryPeriod = 5 * time.Second
	// gcDiscoveryOften is for how long it looks so often. Later it looks each gcDiscoveryLater, as upstream's does: it decodes all kinds then.
	gcDiscoveryOften = 5 * time.Minute
	gcDiscoveryLater = 30 * time.Second
	// gcSyncTimeout is how long the garbage collector waits until it knows all objects. Without that it asks for the owner of each.
	gcSyncTimeout = time.Minute
	workers       = 4
	// collectLatest is when the garbage collector starts, however long that which it waits for takes.
	collectLatest = time.Minute
)

// controllerLoop is a controller that runs until its context ends.
type controllerLoop func(ctx context.Context)

// controllerInputs are what a controller is built from. Configuration and client have its name.
type controllerInputs struct {
	config *rest.Config
	client kubernetes.Interface
	certs  *certificates
	shared informers.SharedInformerFactory
	// tokens is for Secrets with tokens of ServiceAccounts alone.
	tokens informers.SharedInformerFactory
	// collectAfter is nil, or closed when the garbage collector is to start.
	collectAfter <-chan struct{}
}

// startControllers runs the part of kube-controller-manager that an API server without nodes needs. The garbage collector, which reads the
// metadata of all objects, waits for collectAfter. The returned channel is closed when all have ended.
func startControllers(
	ctx context.Context, config *rest.Config, certs *certificates, collectAfter <-chan struct{},
) (<-chan struct{}, error) {
	client, err := clientFor(config, "controllers")
	if err != nil {
		return nil, err
	}
	trimmed := informers.WithTransform(trimObject)
	shared := informers.NewSharedInformerFactoryWithOptions(client, resync, trimmed)
	tokens := informers.NewSharedInformerFactoryWithOptions(client, resync, trimmed, informers.WithTweakListOptions(tokensOnly))

	var loops []controllerLoop
	for _, c := range []struct {
		name  string
		build func(context.Context, controllerInputs) ([]controllerLoop, error)
	}{
		{"namespace-controller", namespaceController},
		{"service-account-controller", serviceAccountController},
		{"tokens-controller", tokenController},
		{"clusterrole-aggregation-controller", roleAggregationController},
		{"generic-garbage-collector", garbageCollector},
	} {
		in := controllerInputs{config: named(config, c.name), certs: certs, shared: shared, tokens: tokens, collectAfter: collectAfter}
		if in.client, err = clientFor(config, c.name); err != nil {
			return nil, err
		}
		built, err := c.build(ctx, in)
		if err != nil {
			return nil, err
		}
		loops = append(loops, built...)
	}
	shared.Start(ctx.Done())
	tokens.Start(ctx.Done())

	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		shared.Shutdown()
		tokens.Shutdown()
		close(done)
	}()
	return done, nil
}

func namespaceController(ctx context.Context, in controllerInputs) ([]controllerLoop, error) {
	metadataClient, err := metadata.NewForConfig(in.config)
	if err != nil {
		return nil, fmt.Errorf("making metadata client: %w", err)
	}
	c := namespace.NewNamespaceController(ctx, in.client, metadataClient, in.client.Discovery().ServerPreferredNamespacedResources,
		in.shared.Core().V1().Namespaces(), resync, corev1.FinalizerKubernetes)
	return []controllerLoop{func(ctx context.Context) { c.Run(ctx, workers) }}, nil
}

func serviceAccountController(ctx context.Context, in controllerInputs) ([]controllerLoop, error) {
	c, err := serviceaccounts.NewServiceAccountsController(klog.FromContext(ctx), in.shared.Core().V1().ServiceAccounts(),
		in.shared.Core().V1().Namespaces(), in.client, serviceaccounts.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, fmt.Errorf("making service account controller: %w", err)
	}
	return []controllerLoop{func(ctx context.Context) { c.Run(ctx, 1) }}, nil
}

// tokenController fills Secrets of type kubernetes.io/service-account-token, which is how every machine gets its credentials.
func tokenController(ctx context.Context, in controllerInputs) ([]controllerLoop, error) {
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, in.certs.serviceAccountKey)
	if err != nil {
		return nil, fmt.Errorf("making token generator: %w", err)
	}
	rootCA, err := os.ReadFile(in.certs.serverCA.certFile)
	if err != nil {
		return nil, fmt.Errorf("reading server CA: %w", err)
	}
	c, err := serviceaccounts.NewTokensController(klog.FromContext(ctx), in.shared.Core().V1().ServiceAccounts(),
		in.tokens.Core().V1().Secrets(), in.client, serviceaccounts.TokensControllerOptions{TokenGenerator: generator, RootCA: rootCA})
	if err != nil {
		return nil, fmt.Errorf("making token controller: %w", err)
	}
	return []controllerLoop{func(ctx context.Context) { c.Run(ctx, workers) }}, nil
}

// roleAggregationController fills the roles admin, edit and view from what is labelled to be part of them.
func roleAggregationController(_ context.Context, in controllerInputs) ([]controllerLoop, error) {
	c := clusterroleaggregation.NewClusterRoleAggregation(in.shared.Rbac().V1().ClusterRoles(), in.client.RbacV1())
	return []controllerLoop{func(ctx context.Context) { c.Run(ctx, 1) }}, nil
}

func garbageCollector(ctx context.Context, in controllerInputs) ([]controllerLoop, error) {
	metadataClient, err := metadata.NewForConfig(in.config)
	if err != nil {
		return nil, fmt.Errorf("making metadata client: %w", err)
	}
	// Two discovery clients, since resetting the mapper must not reset the one with which new kinds are noticed.
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(in.config)
	if err != nil {
		return nil, fmt.Errorf("making discovery client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	factory := metadataOnly{metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, resync,
		metadatainformer.WithTransform(ownersOnly))}
	started := make(chan struct{})
	close(started)

	gc, err := garbagecollector.NewGarbageCollector(ctx, in.client, metadataClient, mapper,
		garbagecollector.DefaultIgnoredResources(), factory, started)
	if err != nil {
		return nil, fmt.Errorf("making garbage collector: %w", err)
	}
	return []controllerLoop{
		in.collecting(func(ctx context.Context) { gc.Run(ctx, workers, gcSyncTimeout) }),
		in.collecting(func(ctx context.Context) {
			findKinds(ctx, func(ctx context.Context, each time.Duration) { gc.Sync(ctx, in.client.Discovery(), each) })
		}),
	}, nil
}

// findKinds has the garbage collector look for new kinds until ctx is done. look does so periodically until its context is.
func findKinds(ctx context.Context, look func(ctx context.Context, each time.Duration)) {
	often, cancel := context.WithTimeout(ctx, gcDiscoveryOften)
	defer cancel()
	look(often, gcDiscoveryPeriod)
	if ctx.Err() == nil {
		look(ctx, gcDiscoveryLater)
	}
}

// collecting runs a loop of the garbage collector when its time has come.
func (in controllerInputs) collecting(loop controllerLoop) controllerLoop {
	if in.collectAfter == nil {
		return loop
	}
	return func(ctx context.Context) {
		select {
		case <-in.collectAfter:
		case <-time.After(collectLatest):
		case <-ctx.Done():
			return
		}
		loop(ctx)
	}
}

// metadataOnly gives the garbage collector informers that keep no more of an object than its metadata, also for kinds that have typed
// informers.
type metadataOnly struct {
	metadatainformer.SharedInformerFactory
}

func (f metadataOnly) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	return f.SharedInformerFactory.ForResource(resource), nil
}

// trimObject is the transform of informers: it drops managed fields, which no controller here reads.
func trimObject(in any) (any, error) {
	if object, err := meta.Accessor(in); err == nil {
		object.SetManagedFields(nil)
	}
	intern.Object(in)
	return in, nil
}

// ownersOnly drops what the garbage collector does not read of an object. It has the metadata of all objects, so that labels and
// annotations would be most of its memory.
func ownersOnly(in any) (any, error) {
	if object, err := meta.Accessor(in); err == nil {
		object.SetLabels(nil)
		object.SetAnnotations(nil)
	}
	return trimObject(in)
}

func named(config *rest.Config, name string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(config), name)
}

func clientFor(config *rest.Config, name string) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(named(config, name))
	if err != nil {
		return nil, fmt.Errorf("making client for %s: %w", name, err)
	}
	return client, nil
}
