package server

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// persistentCache keeps running after the manager that started it has stopped, because the gateway reads from it while it drains.
type persistentCache struct {
	cache.Cache
	lifetime context.Context
}

// newPersistentCache returns a constructor for a manager's cache that runs until lifetime ends.
func newPersistentCache(lifetime context.Context) cache.NewCacheFunc {
	return func(config *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(config, opts)
		return &persistentCache{c, lifetime}, err
	}
}

// Start returns when ctx or the lifetime ends, whichever is first, or when the cache fails.
func (c *persistentCache) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- c.Cache.Start(c.lifetime) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}
