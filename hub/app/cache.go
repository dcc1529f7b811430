package app

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// lastingCache goes on when the manager that started it has ended: the gateway, which reads from it, is still draining then.
type lastingCache struct {
	cache.Cache
	life context.Context
}

// lasting returns what a manager makes its cache with, so that it lasts until life ends.
func lasting(life context.Context) cache.NewCacheFunc {
	return func(config *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := cache.New(config, opts)
		return &lastingCache{c, life}, err
	}
}

// Start returns when ctx or life ends, which ever is first, or when the cache breaks.
func (c *lastingCache) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- c.Cache.Start(c.life) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}
