package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// externalIP is the annotation with the external addresses of a Node.
var externalIP = flavour.Name("*.io/external-ip")

// awaitNode waits until kubelet has registered this node, then sets the labels and annotations that may have changed
// since the node was registered first.
func (a *agent) awaitNode(ctx context.Context) error {
	for n := 0; ; n++ {
		node, err := a.kubelet.CoreV1().Nodes().Get(ctx, a.c.NodeName, metav1.GetOptions{})
		if err == nil {
			err = a.describeNode(ctx, node)
		}
		if err == nil {
			go a.network(ctx)
			return nil
		}
		if n%50 == 49 {
			a.Log.Info("Waiting for this node to be registered", "node", a.c.NodeName, "error", err)
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

func (a *agent) describeNode(ctx context.Context, node *corev1.Node) error {
	labels := map[string]any{}
	for _, text := range a.c.NodeLabel {
		k, v, _ := strings.Cut(text, "=")
		if node.Labels[k] != v {
			labels[k] = v
		}
	}
	annotations := map[string]any{
		flavour.Name("*.io/hostname"): a.c.NodeName, flavour.Name("*.io/internal-ip"): strings.Join(a.ips, ","), externalIP: nil,
		"alpha.kubernetes.io/provided-node-ip": strings.Join(a.ips, ","),
	}
	if len(a.c.NodeExternalIP) > 0 {
		annotations[externalIP] = strings.Join(a.c.NodeExternalIP, ",")
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = a.kubelet.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, raw, metav1.PatchOptions{})
	return err
}

// endpoints are the addresses of all API servers, as they keep them in the service "kubernetes".
func endpoints(ctx context.Context, k kubernetes.Interface) ([]string, error) {
	slices, err := k.DiscoveryV1().EndpointSlices("default").List(ctx,
		metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range slices.Items {
		for _, p := range s.Ports {
			for _, e := range s.Endpoints {
				for _, address := range e.Addresses {
					if p.Port != nil && s.AddressType == "IPv4" {
						out = append(out, fmt.Sprintf("%s:%d", address, *p.Port))
					}
				}
			}
		}
	}
	return out, nil
}
