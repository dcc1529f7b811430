package render

import (
	"fmt"
	"slices"

	"github.com/drover-dev/drover/hub/release"
	"github.com/drover-dev/drover/plans"
)

// APIServerProbe is the probe by which the hub knows that a control plane machine serves the Kubernetes API.
const APIServerProbe = "kube-apiserver"

// addProbes adds the health checks of what runs on the machine.
func (b *builder) addProbes() {
	b.plan.Probes = map[string]plans.Probe{}
	rke2 := b.Cluster.Release.Runtime == release.RKE2
	m := b.Machine
	if m.Etcd && rke2 {
		b.probe("etcd", plans.HTTPGetAction{URL: b.local("http", 2381, "/health")})
	}
	if m.ControlPlane {
		b.addControlPlaneProbes()
	}
	if rke2 || !m.onlyEtcd() {
		b.probe("kubelet", plans.HTTPGetAction{URL: b.local("http", 10248, "/healthz")})
	}
	if rke2 && !m.onlyEtcd() && slices.Contains(b.cni, "calico") {
		b.probe("calico", plans.HTTPGetAction{URL: b.local("http", 9099, "/liveness")})
	}
}

func (b *builder) addControlPlaneProbes() {
	tls := b.dataDir + "/server/tls/"
	port := release.APIServerPort
	if p, ok := b.args["https-listen-port"].(int64); ok && b.Cluster.Release.Runtime == release.K3s {
		port = int(p)
	}
	b.probe(APIServerProbe, plans.HTTPGetAction{
		URL:        b.local("https", port, "/readyz"),
		CACert:     tls + "server-ca.crt",
		ClientCert: tls + "client-kube-apiserver.crt",
		ClientKey:  tls + "client-kube-apiserver.key",
	})
	for _, c := range components {
		port := fmt.Sprint(c.port)
		if own, ok := b.args.option(c.arg, "secure-port"); ok {
			port = own
		}
		// Their serving certificates are signed by themselves, so that each is its own authority.
		ca := b.certDir(c) + "/" + c.name + ".crt"
		if dir, ok := b.args.option(c.arg, "cert-dir"); ok {
			ca = dir + "/" + c.name + ".crt"
		}
		if file, ok := b.args.option(c.arg, "tls-cert-file"); ok {
			ca = file
		}
		b.probe(c.name, plans.HTTPGetAction{URL: "https://" + b.loopback() + ":" + port + "/healthz", CACert: ca})
	}
}

func (b *builder) local(scheme string, port int, path string) string {
	return fmt.Sprintf("%s://%s:%d%s", scheme, b.loopback(), port, path)
}

func (b *builder) probe(name string, get plans.HTTPGetAction) {
	b.plan.Probes[name] = plans.Probe{
		Name: name, InitialDelaySeconds: 1, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 5, HTTPGet: get,
	}
}
