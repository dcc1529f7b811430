package embedded

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
)

// The API server has no watch caches. One holds every object of its kind, and every version that was written within the last 75 seconds,
// decoded: while many machines are made that is half of the heap of the whole hub. The few clients of this server have caches of
// their own, and etcd, in the same process, is as near as a cache would be.

// withoutWatchCaches makes all kinds read and watch etcd itself.
func withoutWatchCaches(config *controlplane.Config) {
	config.ControlPlane.Generic.RESTOptionsGetter = direct{config.ControlPlane.Generic.RESTOptionsGetter}
	config.APIExtensions.GenericConfig.RESTOptionsGetter = direct{config.APIExtensions.GenericConfig.RESTOptionsGetter}
	config.APIExtensions.ExtraConfig.CRDRESTOptionsGetter = direct{config.APIExtensions.ExtraConfig.CRDRESTOptionsGetter}
	config.Aggregator.GenericConfig.RESTOptionsGetter = direct{config.Aggregator.GenericConfig.RESTOptionsGetter}
}

// direct are the options of kinds whose storage is etcd with bookmarks.
type direct struct{ generic.RESTOptionsGetter }

func (d direct) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := d.RESTOptionsGetter.GetRESTOptions(resource, example)
	options.Decorator = storageWithBookmarks
	return options, err
}

func storageWithBookmarks(config *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	if _, custom := newFunc().(*unstructured.Unstructured); custom {
		copied := *config
		copied.Codec = newDecodeOnce(config.Codec)
		config = &copied
	}
	raw, destroy, err := generic.NewRawStorage(config, newFunc, newListFunc, prefix)
	return bookmarks{raw}, destroy, err
}

// bookmarks sends bookmarks to clients that take them, each time that etcd says how far a watch is. With them, a client that saw no event
// of its kind for long can continue its watch after etcd was compacted, and need not list everything again.
type bookmarks struct{ storage.Interface }

func (b bookmarks) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	opts.ProgressNotify = opts.ProgressNotify || opts.Predicate.AllowWatchBookmarks
	return b.Interface.Watch(ctx, key, opts)
}
