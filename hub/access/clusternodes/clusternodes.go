// Package clusternodes reads the Nodes of clusters from the caches that Cluster API keeps of them (clustercache), and watches them.
package clusternodes

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

// maxNodes is how many Nodes are read of a cluster that may be hostile. Kubernetes supports 5,000.
const maxNodes = 50_000

// ErrTooMany is returned instead of reading more Nodes.
var ErrTooMany = fmt.Errorf("the cluster has more than %d Nodes", maxNodes)

// CheckCount returns ErrTooMany for more Nodes than are read.
func CheckCount(nodes int) error {
	if nodes > maxNodes {
		return ErrTooMany
	}
	return nil
}

// Watch is how changes of Nodes are reported. It is started once for each cluster and Name, however often List is called.
type Watch struct {
	// Name of the watch, unique among controllers.
	Name string
	// Controller gets the requests.
	Controller controller.Controller
	// Request is enqueued for every Node that Changed passes.
	Request ctrl.Request
	Changed predicate.Predicate
}

// List watches and lists the Nodes of a cluster, which are not to be changed. The error is clustercache.ErrClusterNotConnected while there
// is no connection to the cluster.
func List(ctx context.Context, cache clustercache.ClusterCache, cluster client.ObjectKey, watch Watch) ([]corev1.Node, error) {
	err := cache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name: watch.Name, Watcher: watch.Controller, Kind: &corev1.Node{}, Predicates: []predicate.Predicate{watch.Changed},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(context.Context,
			client.Object) []ctrl.Request {
			return []ctrl.Request{watch.Request}
		}),
	}))
	if err != nil {
		return nil, err
	}
	reader, err := cache.GetReader(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return Read(ctx, reader)
}

// Read lists the Nodes that a reader has, without a watch.
func Read(ctx context.Context, reader client.Reader) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy)
	return nodes.Items, err
}

// OfMachine returns the Nodes that a reader has with the label of a Machine; where there is none, those with the provider ID that was found
// earlier, if it is not empty: a Machine that was moved to another hub has another UID than the label of its Node.
func OfMachine(ctx context.Context, reader client.Reader, machine types.UID, providerID string) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	err := reader.List(ctx, &nodes, client.MatchingLabels{rkev1.MachineUIDLabel: string(machine)})
	if err != nil || len(nodes.Items) > 0 || providerID == "" {
		return nodes.Items, err
	}
	err = reader.List(ctx, &nodes)
	return slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return n.Spec.ProviderID != providerID }), err
}

// etcdRoleLabel is set by k3s and RKE2 once etcd has been started on a Node.
const etcdRoleLabel = "node-role.kubernetes.io/etcd"

// Several says that two Nodes have the label of one Machine, and what to do. k3s and RKE2 remove the etcd member that a Node names when the
// Node is deleted, unless it has no label of the role: of a machine whose host name has changed both Nodes name the member that it has.
func Several(nodes []corev1.Node, machine types.UID) *cause.Cause {
	label := ""
	if slices.ContainsFunc(nodes, func(n corev1.Node) bool { _, etcd := n.Labels[etcdRoleLabel]; return etcd }) {
		label = "; first remove its label " + etcdRoleLabel + ", or the etcd member of the machine is removed with the Node"
	}
	return cause.New("SeveralNodes", "Nodes %s and %s both have the label %s=%s, as when the host name of a machine has changed; "+
		"delete the one that the machine does not have now%s", nodes[0].Name, nodes[1].Name, rkev1.MachineUIDLabel, machine, label)
}
