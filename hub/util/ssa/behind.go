package ssa

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/drover-dev/drover/hub/util/informers"
)

// Pending reports whether obj has been created or applied as it is, and Metadata has not come so far that it could know. obj is given the
// UID and the resource version that it got then. On a busy hub a cache is behind for a second, and a controller that creates what the cache
// does not have would create each object twice.
func (c *Cache) Pending(ctx context.Context, reconciled client.ObjectKey, obj client.Object) (bool, error) {
	want, err := c.describe(c.FieldOwner, obj)
	if err != nil {
		return false, err
	}
	last, ok := c.load(reconciled, want.identity)
	return ok && last.wanted == want.digest && c.isBehind(ctx, obj, last), nil
}

// behindFor is how long a cache can be behind. Where an API server was restored from a backup while the hub ran, its versions are lower
// than those from before, and nothing that is missing then is waited for.
const behindFor = time.Minute

// isBehind reports whether Metadata, which has no such object, has not come to the version in which it was applied, and gives obj the UID
// and version if so. An object that was deleted since has a later version of its own, at which Metadata is not behind any more.
func (c *Cache) isBehind(ctx context.Context, obj client.Object, last state) bool {
	of, ok := c.Metadata.(cache.Informers)
	if !ok || time.Since(last.written) > behindFor {
		return false
	}
	gvk, err := apiutil.GVKForObject(obj, c.Client.Scheme())
	if err != nil {
		return false
	}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(gvk)
	reached, known := informers.Reached(ctx, of, metadata, last.version)
	if !known || reached {
		return false
	}
	obj.SetUID(last.uid)
	obj.SetResourceVersion(last.version)
	return true
}
