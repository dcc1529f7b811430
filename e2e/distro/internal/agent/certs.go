package agent

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// controller is the name of the certificate of what this node does in the cluster beyond kubelet and kube-proxy.
var controller = flavour.Name("client-*-controller")

func (a *agent) controllerKubeconfig() string {
	return a.data.Agent(flavour.Name("*controller.kubeconfig"))
}

// getCertificates has this node's certificates issued again on every start; the keys stay here and are kept.
func (a *agent) getCertificates(ctx context.Context) error {
	req := supervisor.SignRequest{NodeName: a.c.NodeName, NodeIPs: append(a.ips, a.c.NodeExternalIP...), Keys: map[string][]byte{}}
	for _, name := range []string{"client-kubelet", "serving-kubelet", "client-kube-proxy", controller} {
		key, err := pki.EnsureKey(a.data.Agent(name + ".key"))
		if err != nil {
			return err
		}
		if req.Keys[name], err = pki.MarshalPublicKey(key.Public()); err != nil {
			return err
		}
	}
	certs, err := a.Source.Sign(ctx, req)
	if err != nil {
		return err
	}
	for _, name := range []string{"client-kubelet", "serving-kubelet", "client-kube-proxy", controller, "client-ca", "server-ca"} {
		if len(certs[name]) == 0 {
			return fmt.Errorf("the server gave no certificate %s", name)
		}
		if err := pki.WriteFile(a.data.Agent(name+".crt"), certs[name], 0o644); err != nil {
			return err
		}
	}
	for file, cert := range map[string]string{a.data.Agent("kubelet.kubeconfig"): "client-kubelet",
		a.data.Agent("kubeproxy.kubeconfig"): "client-kube-proxy", a.controllerKubeconfig(): controller} {
		if err := kubeconfig.Write(file, a.url, a.data.Agent("server-ca.crt"), a.data.Agent(cert)); err != nil {
			return err
		}
	}
	a.kubelet, err = kubeconfig.Client(a.data.Agent("kubelet.kubeconfig"))
	return err
}
