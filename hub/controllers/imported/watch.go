package imported

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

// versionTimeout is how long a cluster may take to tell its version.
const versionTimeout = 30 * time.Second

// facts are what was seen of a cluster.
type facts struct {
	// version is nil until the API has answered.
	version *version.Info
	// nodes is how many there are, if counted.
	nodes   int
	counted bool
}

// watchers hold one watch per connected cluster.
type watchers struct {
	mu      sync.Mutex
	ctx     context.Context
	reach   func(management string) *rest.Config
	changed func(management string)
	byName  map[string]*watcher
}

func (w *watchers) start(ctx context.Context, reach func(string) *rest.Config, changed func(string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.reach, w.changed, w.byName = ctx, reach, changed, map[string]*watcher{}
}

// of returns what was seen of a cluster, and watches it from now on.
func (w *watchers) of(name string) facts {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.byName[name]
	if one == nil {
		ctx, cancel := context.WithCancel(w.ctx)
		one = &watcher{cancel: cancel, changed: func() { w.changed(name) }}
		w.byName[name] = one
		config := w.reach(name)
		go one.run(ctx, name, config)
	}
	return one.facts()
}

func (w *watchers) end(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.byName[name]; one != nil {
		one.cancel()
		delete(w.byName, name)
	}
}

// watcher watches the Nodes of one cluster.
type watcher struct {
	cancel  context.CancelFunc
	changed func()

	mu   sync.Mutex
	seen facts
}

func (w *watcher) facts() facts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

func (w *watcher) update(change func(*facts)) {
	w.mu.Lock()
	before := w.seen
	change(&w.seen)
	same := w.seen == before
	w.mu.Unlock()
	if !same {
		w.changed()
	}
}

// run watches until ctx ends. What fails is tried again with growing pauses, which is the reflector's business.
func (w *watcher) run(ctx context.Context, name string, config *rest.Config) {
	log := ctrl.Log.WithName("imported").WithValues("Cluster", name)
	nodes, versions, err := clients(config)
	if err != nil {
		log.Error(err, "The cluster cannot be watched")
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var store cache.Store
	count := func(any) {
		w.update(func(f *facts) { f.nodes, f.counted = len(store.ListKeys()), true })
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
			// An agent of another maker, whose manifest does not let the hub read Nodes, or an API without Nodes. The version is known all the same.
			log.Info("The Nodes of the cluster are not counted: it has none, or the hub may not read them", "reason", err.Error())
			stop()
			return
		}
		log.V(1).Info("The Nodes of the cluster cannot be watched; it is tried again", "reason", err.Error())
	})
	err3 := informer.SetTransform(func(in any) (any, error) {
		if node, ok := in.(*metav1.PartialObjectMetadata); ok {
			node.ObjectMeta = metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}
		}
		return in, nil
	})
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			log.Error(err, "The cluster cannot be watched")
			return
		}
	}
	informer.RunWithContext(ctx)
}

func (w *watcher) readVersion(ctx context.Context, from discovery.ServerVersionInterface) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	got, err := from.ServerVersion()
	if err != nil {
		return fmt.Errorf("reading the version of the cluster's API: %w", err)
	}
	w.update(func(f *facts) {
		if f.version == nil || *f.version != *got {
			f.version = got
		}
	})
	return nil
}

func clients(config *rest.Config) (metadata.ResourceInterface, discovery.ServerVersionInterface, error) {
	nodes, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	bounded := rest.CopyConfig(config)
	bounded.Timeout = versionTimeout
	versions, err := discovery.NewDiscoveryClientForConfig(bounded)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	return nodes.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), versions, nil
}
