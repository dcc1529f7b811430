package render

import (
	"fmt"
	"slices"

	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// APIServerProbe is the probe by which the hub knows that a control plane machine serves the Kubernetes API.
const APIServerProbe = "kube-apiserver"

// addProbes adds the health checks of what runs on the machine. Where the hub does not write the configuration, those are left out that
// need a part of it, or a network plugin that the cluster may not have.
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
		b.addKubeletProbe()
	}
	if rke2 && !m.onlyEtcd() && !m.windows() && !b.Cluster.Spec.UnmanagedConfig {
		b.addCalicoProbe()
	}
}

func (b *builder) addKubeletProbe() {
	port := "10248"
	if own, ok := b.args.option("kubelet-arg", "healthz-port"); ok {
		port = own
	}
	if port != "0" {
		b.probe("kubelet", plans.HTTPGetAction{URL: "http://" + b.hostOf("kubelet-arg", "healthz-bind-address") + ":" + port + "/healthz"})
	}
}

// hostOf is where a component is probed: the address that an option among its arguments gives it, or the loopback address where it listens
// at all.
func (b *builder) hostOf(arg, option string) string {
	own, _ := b.args.option(arg, option)
	return b.listensAt(own)
}

// addCalicoProbe watches Calico on the machines where it really runs: it is the cluster's network plugin, its chart is not disabled, and
// the chart's values do not switch the health check off.
func (b *builder) addCalicoProbe() {
	const chart = "rke2-calico"
	if !slices.Contains(b.all.words("cni"), "calico") || slices.Contains(b.all.words("disable"), chart) {
		return
	}
	values, _ := b.Cluster.Spec.ChartValues.Data[chart].(map[string]any)
	felix, _ := values["felixConfiguration"].(map[string]any)
	if enabled, ok := felix["healthEnabled"].(bool); ok && !enabled {
		return
	}
	port := int64(9099)
	if own, err := toInt(felix["healthPort"]); err == nil {
		port, _ = own.(int64)
	}
	// Felix listens on localhost, where IPv4 comes first, and nowhere else: https://github.com/projectcalico/calico/issues/10972
	host := b.loopback()
	if host == "[::1]" {
		host = "localhost"
	}
	b.probe("calico", plans.HTTPGetAction{URL: fmt.Sprintf("http://%s:%d/liveness", host, port)})
}

func (b *builder) addControlPlaneProbes() {
	tls := b.dataDir + "/server/tls/"
	host := b.loopback()
	if b.Cluster.Release.Runtime == release.K3s {
		host = b.serverHost()
	}
	b.probe(APIServerProbe, plans.HTTPGetAction{
		URL:        fmt.Sprintf("https://%s:%d/readyz", host, APIPort(b.Cluster)),
		CACert:     tls + "server-ca.crt",
		ClientCert: tls + "client-kube-apiserver.crt",
		ClientKey:  tls + "client-kube-apiserver.key",
	})
	if b.Cluster.Spec.UnmanagedConfig {
		return // the components may present certificates of which no file is known
	}
	for _, c := range components {
		port := fmt.Sprint(c.port)
		if own, ok := b.args.option(c.arg, "secure-port"); ok {
			port = own
		}
		if port == "0" || b.args["disable-"+string(c.service)] == true {
			continue // it serves nothing, or does not run
		}
		// A certificate that is expected is its own authority, whoever has signed it.
		ca := b.certDir(c) + "/" + c.name + ".crt"
		if dir, ok := b.args.option(c.arg, "cert-dir"); ok && !b.keepsCertificate(c) {
			ca = dir + "/" + c.name + ".crt"
		}
		if file, ok := b.args.option(c.arg, "tls-cert-file"); ok {
			ca = file
		}
		b.probe(c.name, plans.HTTPGetAction{URL: "https://" + b.hostOf(c.arg, "bind-address") + ":" + port + "/healthz", CACert: ca})
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
