package agent

import (
	"context"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/staticpod"
)

// Node is the node of a server whose control plane runs as static pods. It is brought up in parts, since etcd and the Kubernetes API
// need its kubelet, and its Node object needs them.
type Node struct{ *agent }

// NewNode returns a node of which nothing has started.
func NewNode(o Options) Node { return Node{newAgent(o)} }

// StartRuntime starts the container runtime. What ran in it before still does.
func (n Node) StartRuntime(ctx context.Context) error {
	return run(ctx, phase{"preparing this machine", n.prepare}, phase{"asking for the cluster's settings", n.askSettings},
		phase{"starting containerd", n.startContainerd})
}

// ReconcilePods ends the static pods of the control plane that are not those of the manifests. The kubelet must not have been started.
func (n Node) ReconcilePods(ctx context.Context) error {
	return staticpod.Reconcile(ctx, layout.ContainerdSocket, staticpod.Folder(n.data.PodManifests()), config.StaticPods)
}

// StartKubelet starts kubelet, which starts the static pods. It waits for no Kubernetes API.
func (n Node) StartKubelet(ctx context.Context) error {
	return run(ctx, phase{"importing images", n.importImages}, phase{"finding the Kubernetes API", n.expectAPI},
		phase{"getting certificates", n.getCertificates}, phase{"starting kubelet", n.startKubelet})
}

// expectAPI settles where kubelet and kube-proxy talk to, once there is a Kubernetes API.
func (n Node) expectAPI(ctx context.Context) error {
	if n.LocalAPI {
		return n.findAPI(ctx)
	}
	return n.balanceAPI(ctx, 2*time.Second, nil, n.expectedServers)
}

// expectedServers asks this server first: as long as it has not said where a Kubernetes API is, none can be asked.
func (n Node) expectedServers(ctx context.Context) ([]string, error) {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	servers, err := n.Source.APIServers(limited)
	if err == nil && len(servers) > 0 {
		return servers, nil
	}
	if more, err := n.currentServers(ctx); err == nil {
		return more, nil
	}
	return servers, err
}

// Finish returns once the Node object is there.
func (n Node) Finish(ctx context.Context) error {
	return run(ctx, phase{"waiting for the Node", n.awaitNode}, phase{"starting kube-proxy", n.startProxy})
}
