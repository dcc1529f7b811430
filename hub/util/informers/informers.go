// Package informers says how far a cache is behind the API server.
package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reached reports whether what a cache returns of a kind is of a resource version, which may be that of an object of another kind, or of a
// later one. It is known only where the cache says how far it is, and both versions are numbers. A cache of a kind of which nothing changes
// is behind others for minutes.
func Reached(ctx context.Context, of cache.Informers, kind client.Object, version string) (reached, known bool) {
	informer, err := of.GetInformer(ctx, kind)
	if err != nil {
		return false, false
	}
	// Not of the interface, but of each informer of client-go. The version of the informer itself is that of what it has received, of which
	// the store may not have all.
	with, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return false, false
	}
	return Has(with.GetIndexer(), version)
}

// Has is Reached for the store of a cache.
func Has(store toolscache.Store, version string) (reached, known bool) {
	order, err := resourceversion.CompareResourceVersion(store.LastStoreSyncResourceVersion(), version)
	return order >= 0, err == nil
}
