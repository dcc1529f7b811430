package capi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clientOf is a cache with a connection to a cluster.
type clientOf struct {
	clustercache.ClusterCache
	client client.Client
}

func (c clientOf) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return c.client, nil
}

func (c clientOf) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return c.client, nil
}

// stuck is a client of a server that does not do what it should.
type stuck struct{ client.Client }

func (stuck) Patch(ctx context.Context, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestWriteTimeout: a controller does not wait for a write for longer than the time for it.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &Connections{ClusterCache: clientOf{client: stuck{}}}
		for name, get := range map[string]func(context.Context, client.ObjectKey) (client.Client, error){
			"cached": connections.GetClient, "uncached": connections.GetUncachedClient,
		} {
			remote, err := get(t.Context(), client.ObjectKey{})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			err = remote.Patch(t.Context(), &corev1.Node{}, client.RawPatch("", nil))
			if took := time.Since(begin); !errors.Is(err, errWriteTimeout) || !errors.Is(err, context.DeadlineExceeded) || took != writeTimeout {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		}
	})
}
