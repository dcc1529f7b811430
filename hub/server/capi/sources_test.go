package capi

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// fakeCache is the part of upstream's cache that starts sources: an event is sent through a channel that only the source reads.
type fakeCache struct {
	clustercache.ClusterCache
	events chan event.GenericEvent
}

func (c fakeCache) GetClusterSource(_ string, mapFunc func(context.Context, client.Object) []ctrl.Request,
	_ ...clustercache.GetClusterSourceOption) source.Source {
	return source.Channel(c.events, handler.EnqueueRequestsFromMapFunc(mapFunc))
}

// TestSourcesWhileStopping: upstream's cache waits for every source, so that a hub could not stop while it connects a cluster.
func TestSourcesWhileStopping(t *testing.T) {
	cache := fakeCache{events: make(chan event.GenericEvent)}
	connections := &Connections{ClusterCache: cache}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	ctx, stop := context.WithCancel(t.Context())
	mapFunc := func(_ context.Context, o client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}
	if err := connections.GetClusterSource("test", mapFunc).Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	tell := func(when string) {
		t.Helper()
		select {
		case cache.events <- event.GenericEvent{Object: &clusterv1.Cluster{}}:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s, the event is not received", when)
		}
	}
	tell("while the hub runs")
	if _, ended := queue.Get(); ended {
		t.Fatal("the queue has ended")
	}
	stop()
	queue.ShutDown()
	// The first could be taken by a source that has not seen yet that it has ended.
	for range 20 {
		time.Sleep(time.Millisecond)
		tell("while the hub stops")
	}
}
