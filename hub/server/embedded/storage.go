package embedded

import (
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
)

// The API server has no watch caches. One holds every object of its kind, and every version that was written within the last 75 seconds,
// decoded: while many machines are made that is half of the heap of the whole hub. The few clients of this server have caches of
// their own, and etcd, in the same process, is as near as a cache would be: the API server calls its functions, and no connection is
// between them.

// storeIn makes all kinds read, watch and write this member itself. A watch is told how far it is once in an interval.
func storeIn(member *etcdserver.EtcdServer, config *controlplane.Config, opts Options) {
	in := func(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
		return direct{getter, member, opts.bookmarkInterval(), opts.TrimWatched}
	}
	config.ControlPlane.Generic.RESTOptionsGetter = in(config.ControlPlane.Generic.RESTOptionsGetter)
	config.APIExtensions.GenericConfig.RESTOptionsGetter = in(config.APIExtensions.GenericConfig.RESTOptionsGetter)
	config.APIExtensions.ExtraConfig.CRDRESTOptionsGetter = in(config.APIExtensions.ExtraConfig.CRDRESTOptionsGetter)
	config.Aggregator.GenericConfig.RESTOptionsGetter = in(config.Aggregator.GenericConfig.RESTOptionsGetter)
}

// direct are the options of kinds whose storage is a member in this process, with bookmarks.
type direct struct {
	generic.RESTOptionsGetter
	member *etcdserver.EtcdServer
	// bookmarks is how often a watch is told how far it is.
	bookmarks time.Duration
	// trim is of custom resources that clients in this process watch.
	trim func(object any) (any, error)
}

func (d direct) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := d.RESTOptionsGetter.GetRESTOptions(resource, example)
	options.Decorator = d.storage
	return options, err
}

func (d direct) storage(config *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	codec, transformer := config.Codec, config.Transformer
	_, custom := newFunc().(*unstructured.Unstructured)
	secrets := config.GroupResource == corev1.Resource("secrets")
	if custom || secrets {
		codec = newDecodeOnce(codec)
	}
	switch {
	case transformer == nil:
		transformer = identity.NewEncryptCheckTransformer()
	case secrets:
		transformer = newDecryptOnce(transformer)
	}

	// Each kind has a client of its own, as when it has a connection: watches of one client share a stream, and none waits for another kind.
	client := &kubernetes.Client{Client: newLocalClient(d.member)}
	client.Kubernetes = client
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	versioner := storage.APIObjectVersioner{}
	store, err := etcd3.New(client, nil, codec, newFunc, newListFunc, config.Prefix, prefix, config.GroupResource, transformer,
		config.LeaseManagerConfig, etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		_ = client.Close()
		return nil, nil, fmt.Errorf("making the storage of %s: %w", config.GroupResource, err)
	}
	destroy := sync.OnceFunc(func() { // subresources share it
		store.Close()
		_ = client.Close()
	})
	watched := &bookmarks{Interface: store, newObject: newFunc, interval: d.bookmarks}
	if custom {
		watched.encoded, watched.trim = newEncodeOnce(), d.trim
	}
	return watched, destroy, nil
}
