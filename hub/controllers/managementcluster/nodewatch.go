package managementcluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
)

// versionTimeout bounds a request for the version of a cluster.
const versionTimeout = 30 * time.Second

// observation is what was read of an imported cluster.
type observation struct {
	// version is nil until the API has answered.
	version *version.Info
	// nodes is the number of Nodes; it is valid if counted.
	nodes   int
	counted bool
}

// nodeWatchers holds one watch of Nodes per connected cluster.
type nodeWatchers struct {
	mu      sync.Mutex
	ctx     context.Context
	config  func(management string) *rest.Config
	changed func(management string)
	byName  map[string]*nodeWatcher
}

func (w *nodeWatchers) start(ctx context.Context, config func(string) *rest.Config, changed func(string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.config, w.changed, w.byName = ctx, config, changed, map[string]*nodeWatcher{}
}

// watch starts the watch of a cluster, unless it runs, and returns what it has observed.
func (w *nodeWatchers) watch(name string) observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.byName[name]
	if one == nil {
		ctx, cancel := context.WithCancel(w.ctx)
		one = &nodeWatcher{cancel: cancel, changed: func() { w.changed(name) }}
		w.byName[name] = one
		go one.run(ctx, name, w.config(name))
	}
	return one.get()
}

func (w *nodeWatchers) stop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.byName[name]; one != nil {
		one.cancel()
		delete(w.byName, name)
	}
}

// nodeWatcher watches the Nodes of one cluster. It reads the version whenever a watch begins: a watch ends when the cluster's API server is
// replaced.
type nodeWatcher struct {
	cancel  context.CancelFunc
	changed func()

	mu       sync.Mutex
	observed observation
}

func (w *nodeWatcher) get() observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed
}

func (w *nodeWatcher) update(change func(*observation)) {
	w.mu.Lock()
	before := w.observed
	change(&w.observed)
	same := w.observed == before
	w.mu.Unlock()
	if !same {
		w.changed()
	}
}

// run watches until ctx ends. The reflector retries with back-off.
func (w *nodeWatcher) run(ctx context.Context, name string, config *rest.Config) {
	log := ctrl.Log.WithName("managementcluster").WithValues("Cluster", name)
	nodes, versions, err := clients(config)
	if err != nil {
		log.Error(err, "Failed to watch the Nodes of the cluster")
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var store cache.Store
	count := func(any) {
		w.update(func(o *observation) { o.nodes, o.counted = len(store.ListKeys()), true })
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if err := w.readVersion(ctx, versions); err != nil {
				return nil, err
			}
			return nodes.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if err := w.readVersion(ctx, versions); err != nil {
				return nil, err
			}
			return nodes.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(lw, &metav1.PartialObjectMetadata{}, cache.SharedIndexInformerOptions{})
	store = informer.GetStore()
	_, err1 := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: count, DeleteFunc: count})
	err2 := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			// The manifest of a legacy agent does not let the hub read Nodes, and an API may have none. The version is known nevertheless.
			log.Info("Not counting the Nodes of the cluster: it has none, or the hub may not list them", "error", err.Error())
			stop()
			return
		}
		log.V(1).Info("Watching the Nodes of the cluster failed, retrying", "error", err.Error())
	})
	err3 := informer.SetTransform(func(in any) (any, error) {
		if node, ok := in.(*metav1.PartialObjectMetadata); ok {
			node.ObjectMeta = metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}
		}
		return in, nil
	})
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			log.Error(err, "Failed to watch the Nodes of the cluster")
			return
		}
	}
	informer.RunWithContext(ctx)
}

func (w *nodeWatcher) readVersion(ctx context.Context, from discovery.ServerVersionInterface) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	got, err := from.ServerVersion()
	if err != nil {
		return fmt.Errorf("reading the version of the cluster's API: %w", err)
	}
	w.update(func(o *observation) {
		if o.version == nil || *o.version != *got {
			o.version = got
		}
	})
	return nil
}

func clients(config *rest.Config) (metadata.ResourceInterface, discovery.ServerVersionInterface, error) {
	nodes, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client: %w", err)
	}
	bounded := rest.CopyConfig(config)
	bounded.Timeout = versionTimeout
	versions, err := discovery.NewDiscoveryClientForConfig(bounded)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client: %w", err)
	}
	return nodes.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), versions, nil
}
