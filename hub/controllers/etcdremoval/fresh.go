package etcdremoval

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/redirect"
)

// freshTimeout limits a look through a connection of its own.
const freshTimeout = 5 * time.Second

// freshNodes reads through a connection of its own, for this one time. That which Cluster API keeps may lead, through a load balancer, to the
// API server beside the very member that was removed: it has no etcd any more, so it tells nothing new, and yet it passes for healthy.
func (r *Reconciler) freshNodes(ctx context.Context, key client.ObjectKey) ([]corev1.Node, error) {
	kept, err := r.ClusterCache.GetRESTConfig(ctx, key)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(kept)
	config.Dial = (&net.Dialer{}).DialContext // who dials by himself shares no connection
	config.Timeout = freshTimeout
	redirect.Restrict(config)
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to the cluster: %w", err)
	}
	defer connection.CloseIdleConnections()
	api, err := corev1client.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to the cluster: %w", err)
	}
	nodes, err := api.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return nodes.Items, nil
}
