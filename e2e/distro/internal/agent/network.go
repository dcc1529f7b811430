package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/drover-dev/drover/e2e/distro/internal/args"
	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

// network follows the Nodes: it configures this node's bridge once its range is known, and routes to the other nodes'.
func (a *agent) network(ctx context.Context) {
	k, err := kubeconfig.Client(a.controllerKubeconfig())
	if err != nil {
		a.Log.Error("Cannot set up the pod network", "error", err)
		return
	}
	factory := informers.NewSharedInformerFactory(k, time.Minute)
	informer := factory.Core().V1().Nodes().Informer()
	handle := func(obj any) {
		node, ok := obj.(*corev1.Node)
		if !ok || len(node.Spec.PodCIDRs) == 0 {
			return
		}
		if err := a.connect(ctx, node); err != nil && ctx.Err() == nil {
			a.Log.Warn("Cannot connect the pods of a node, trying again", "node", node.Name, "error", err)
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) },
		DeleteFunc: func(obj any) {
			if node, ok := obj.(*corev1.Node); ok && node.Name != a.c.NodeName {
				for _, cidr := range node.Spec.PodCIDRs {
					_ = command(ctx, "ip", "route", "del", cidr)
				}
			}
		},
	})
	factory.Start(ctx.Done())
}

func (a *agent) connect(ctx context.Context, node *corev1.Node) error {
	if node.Name == a.c.NodeName {
		if err := a.configureBridge(ctx, node.Spec.PodCIDRs); err != nil {
			return err
		}
		a.calico.Do(func() { a.answerForCalico(ctx) })
		return nil
	}
	for _, cidr := range node.Spec.PodCIDRs {
		for _, address := range node.Status.Addresses {
			if address.Type != corev1.NodeInternalIP || isIPv6(address.Address) != isIPv6(cidr) {
				continue
			}
			if err := command(ctx, "ip", "route", "replace", cidr, "via", address.Address); err != nil {
				return err
			}
		}
	}
	return nil
}

// configureBridge writes the CNI configuration, which makes the node ready, and lets pods out of the cluster under the
// address of their node.
func (a *agent) configureBridge(ctx context.Context, cidrs []string) error {
	var ranges [][]map[string]string
	for _, cidr := range cidrs {
		ranges = append(ranges, []map[string]string{{"subnet": cidr}})
	}
	raw, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0", "name": "cbr0", "plugins": []map[string]any{
			{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, "forceAddress": true,
				"ipam": map[string]any{"type": "host-local", "ranges": ranges}},
			{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	for _, cidr := range cidrs {
		if err := a.masquerade(ctx, cidr); err != nil {
			return err
		}
	}
	return pki.WriteFile(a.data.Agent("etc/cni/net.d/10-bridge.conflist"), raw, 0o600)
}

func (a *agent) masquerade(ctx context.Context, cidr string) error {
	tool := "iptables"
	if isIPv6(cidr) {
		tool = "ip6tables"
	}
	rule := []string{"POSTROUTING", "-s", cidr, "-m", "comment", "--comment", flavour.Name("* pods leave the cluster"), "-j", "MASQUERADE"}
	for _, inside := range a.settings.ClusterCIDR {
		if isIPv6(inside) == isIPv6(cidr) {
			rule = append([]string{"POSTROUTING", "!", "-d", inside}, rule[1:]...)
		}
	}
	if command(ctx, tool, append([]string{"-w", "-t", "nat", "-C"}, rule...)...) == nil {
		return nil
	}
	return command(ctx, tool, append([]string{"-w", "-t", "nat", "-A"}, rule...)...)
}

func (a *agent) startProxy(context.Context) error {
	if a.settings.DisableKubeProxy {
		return nil
	}
	return a.Set.Start(child.Child{Name: "kube-proxy", Patience: 3 * time.Second,
		Args: append([]string{"internal", "kube-proxy"}, args.Merge(map[string]string{
			"kubeconfig": a.data.Agent("kubeproxy.kubeconfig"), "hostname-override": a.c.NodeName, "proxy-mode": "iptables",
			"cluster-cidr": strings.Join(a.settings.ClusterCIDR, ","), "healthz-bind-address": "127.0.0.1", "conntrack-max-per-core": "0",
			"conntrack-tcp-timeout-close-wait": "0s", "conntrack-tcp-timeout-established": "0s",
		}, a.c.KubeProxyArg)...)})
}

// isIPv6 tells of an address or a range.
func isIPv6(text string) bool {
	host, _, _ := strings.Cut(text, "/")
	ip := net.ParseIP(host)
	return ip != nil && ip.To4() == nil
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
