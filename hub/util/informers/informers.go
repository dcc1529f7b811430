// Package informers says how far a cache is behind the API server.
package informers

import (
	"context"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reached reports whether the cache of a kind has come to a resource version, which may be that of an object of another kind. It is known
// only where the cache says how far it is, and both versions are numbers. A cache of a kind of which nothing changes is behind others for
// minutes.
func Reached(ctx context.Context, of cache.Informers, kind client.Object, version string) (reached, known bool) {
	informer, err := of.GetInformer(ctx, kind)
	if err != nil {
		return false, false
	}
	// Not of the interface, but of each informer of client-go.
	synced, ok := informer.(interface{ LastSyncResourceVersion() string })
	if !ok {
		return false, false
	}
	order, err := resourceversion.CompareResourceVersion(synced.LastSyncResourceVersion(), version)
	return order >= 0, err == nil
}
