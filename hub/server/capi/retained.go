package capi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// maxRetained is what the objects of a kind may cost that are kept of a cluster: their bytes as protobuf, and objectCost for each. Without
	// images, 10,000 Nodes cost some 70 MB. Those of other kinds are maps, which take jsonCost bytes for each byte of JSON.
	maxRetained = 128 << 20
	objectCost  = 2 << 10
	jsonCost    = 4
	// refusal is how long the hub has no connection to a cluster with more.
	refusal = 10 * time.Minute
)

func retainedCost(object any) int {
	switch object := object.(type) {
	case toolscache.DeletedFinalStateUnknown:
		return retainedCost(object.Obj)
	case *unstructured.Unstructured:
		raw, err := object.MarshalJSON()
		if err != nil {
			return objectCost
		}
		return objectCost + jsonCost*len(raw)
	case interface{ Size() int }:
		return objectCost + object.Size()
	}
	return objectCost
}

// retain counts an object that is kept, or let go.
func (s *sharedHandler) retain(cost int) {
	s.mu.Lock()
	before := s.retained
	s.retained += cost
	exceeded := before <= maxRetained && s.retained > maxRetained
	s.mu.Unlock()
	if exceeded {
		s.exceeded()
	}
}

// refuse returns what is called when the objects of a cluster exceed maxRetained.
func (c *Connections) refuse(cluster client.ObjectKey) func() {
	return func() {
		log.Log.WithName("capi").Info("The objects of a cluster exceed a limit, disconnecting it", "Cluster", cluster.String(),
			"limit", fmt.Sprintf("%d MiB", maxRetained>>20), "duration", refusal.String())
		c.reconnector.refuse(cluster)
	}
}

// measure has the Nodes of a cluster counted, if there is a connection, whether or not a controller watches them.
func (c *Connections) measure(ctx context.Context, cluster client.ObjectKey) {
	_ = c.Watch(ctx, cluster, measuring{}) // without a connection there is nothing to count
}

// measuring is a clustercache.Watcher without a controller.
type measuring struct{}

// Name implements clustercache.Watcher.
func (measuring) Name() string { return "drover-retained" }

// Object implements clustercache.Watcher.
func (measuring) Object() client.Object { return &corev1.Node{} }

// Watch implements clustercache.Watcher.
func (measuring) Watch(of cache.Cache) error {
	informer, err := of.GetInformer(context.Background(), &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandlerWithOptions(toolscache.ResourceEventHandlerFuncs{}, toolscache.HandlerOptions{})
	return err
}
