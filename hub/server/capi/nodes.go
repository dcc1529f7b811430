package capi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/intern"
	"github.com/drover-dev/drover/hub/util/message"
)

// Of what a kubelet reports of its Node, so many bytes of each text are kept, of the message of each condition, and so many addresses.
// Whoever administers one machine writes them as often as he likes, and Cluster API copies them to the status of the Machine: each change
// is a version of the Machine in etcd.
const (
	maxNodeText      = 256
	maxNodeMessage   = 1 << 10
	maxNodeAddresses = 64
	// maxNodeEntries is for all other lists. Labels or annotations of more than maxNodeMetadata bytes, more than an API server accepts
	// as annotations, or of more than maxNodeLabels entries are not kept at all.
	maxNodeEntries  = 256
	maxNodeMetadata = 256 << 10
	maxNodeLabels   = 2000
)

// cacheOptions are those of the caches of clusters. Of Nodes these do not have what no controller reads: the images, of which a kubelet
// reports fifty, more than all else of a Node, and the resources, two maps of some 700 bytes.
func cacheOptions() clustercache.CacheOptions {
	options := setup.ClusterCacheCacheOptions()
	strip := options.DefaultTransform
	options.DefaultTransform = func(in any) (any, error) {
		if node, ok := in.(*corev1.Node); ok {
			node.Status.Images, node.Status.Capacity, node.Status.Allocatable = nil, nil, nil
			boundNode(node)
		}
		intern.Object(in)
		return strip(in)
	}
	return options
}

// boundNode cuts what a kubelet reports to the bounds.
func boundNode(node *corev1.Node) {
	info, status := &node.Status.NodeInfo, &node.Status
	texts := []*string{&info.MachineID, &info.SystemUUID, &info.BootID, &info.KernelVersion, &info.OSImage, &info.ContainerRuntimeVersion,
		&info.KubeletVersion, &info.OperatingSystem, &info.Architecture,
		&info.KubeProxyVersion} //nolint:staticcheck // kubelets of earlier releases report it, and hostile ones
	status.Addresses = bounded(status.Addresses, maxNodeAddresses)
	status.Conditions = bounded(status.Conditions, maxNodeEntries)
	boundEntries(node)
	for i := range status.Addresses {
		texts = append(texts, &status.Addresses[i].Address)
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		texts, c.Message = append(texts, &c.Reason), message.Bound(c.Message, maxNodeMessage)
	}
	for _, text := range texts {
		*text = message.Bound(*text, maxNodeText)
	}
}

// boundEntries cuts lists and maps of which Cluster API copies nothing to Machines. A hostile API server can make their entries many, and
// each takes more memory than the bytes of an empty one.
func boundEntries(node *corev1.Node) {
	spec, status := &node.Spec, &node.Status
	spec.Taints, spec.PodCIDRs = bounded(spec.Taints, maxNodeEntries), bounded(spec.PodCIDRs, maxNodeEntries)
	status.VolumesInUse = bounded(status.VolumesInUse, maxNodeEntries)
	status.VolumesAttached = bounded(status.VolumesAttached, maxNodeEntries)
	status.RuntimeHandlers, status.DeclaredFeatures, status.Config = nil, nil, nil
	node.OwnerReferences = bounded(node.OwnerReferences, maxNodeEntries)
	node.Finalizers = bounded(node.Finalizers, maxNodeEntries)
	node.Labels, node.Annotations = boundedMap(node.Labels), boundedMap(node.Annotations)
}

// bounded is a list, or so many entries of it, without the memory of the others.
func bounded[T any](list []T, limit int) []T {
	if len(list) <= limit {
		return list
	}
	return slices.Clone(list[:limit])
}

func boundedMap(of map[string]string) map[string]string {
	size := 0
	for key, value := range of {
		size += len(key) + len(value)
	}
	if size > maxNodeMetadata || len(of) > maxNodeLabels {
		return nil
	}
	return of
}

// machineNodes is the ClusterCache of the Machine controller, without what that does for nothing.
//
// Upstream's finds the Node of a Machine by the index of provider IDs, and where that has none it looks at a copy of each Node of the
// cluster, in case that there is no index: for as long as Machines wait for their Nodes, each reconcile of one would cost the more, the
// more Nodes there are. The caches of this hub have the index.
//
// And it patches the Node of a Machine that no controller owns, as a custom machine, in each reconcile: it takes the annotations that name
// the owner for ones to remove, also where the Node has none.
type machineNodes struct{ clustercache.ClusterCache }

// GetClient implements clustercache.ClusterCache.
func (c machineNodes) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	remote, err := c.ClusterCache.GetClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return nodesClient{remote}, nil
}

type nodesClient struct{ client.Client }

// List implements client.Reader. A list of all Nodes is empty.
func (c nodesClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if nodes, ok := list.(*corev1.NodeList); ok && len(opts) == 0 {
		nodes.Items = nil
		return nil
	}
	return c.Client.List(ctx, list, opts...)
}

// Patch implements client.Writer. A patch of a Node that would change nothing is not sent.
func (c nodesClient) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if _, ok := object.(*corev1.Node); ok {
		data, err := patch.Data(object)
		if err != nil {
			return err
		}
		if string(data) == fmt.Sprintf(`{"metadata":{"resourceVersion":%q}}`, object.GetResourceVersion()) {
			return nil
		}
	}
	return c.Client.Patch(ctx, object, patch, opts...)
}
