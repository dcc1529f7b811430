package config

import (
	"slices"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// kind is the type of a key's value.
type kind int

const (
	text kind = iota
	flag
	number
	// duration is a number with a unit, such as 5m.
	duration
	// list is a list of texts; a single text is a list of one.
	list
	// csv is a list whose texts may each hold several values with commas between.
	csv
)

// effect tells what this fixture makes of a key.
type effect int

const (
	// used keys change what the fixture does.
	used effect = iota
	// ignored keys are those of k3s and RKE2 that mean nothing here; they are accepted, and named in a log line.
	ignored
)

type key struct {
	kind   kind
	effect effect
	server bool // only server nodes take it
}

// keys are the names that the distribution takes in its configuration file.
var keys = table(flavour.Current)

// notRKE2 are the keys of k3s that RKE2 does not have.
var notRKE2 = []string{"advertise-port", "cluster-init", "default-local-storage-path", "disable-apiserver-lb", "disable-helm-controller",
	"disable-network-policy", "docker", "flannel-backend", "flannel-cni-conf", "flannel-conf", "flannel-external-ip", "flannel-iface",
	"flannel-ipv6-masq", "https-listen-port", "image-service-endpoint", "prefer-bundled-bin", "rootless", "vpn-auth", "vpn-auth-file"}

func table(f flavour.Flavour) map[string]key {
	out := map[string]key{}
	add := func(server bool, k kind, e effect, names ...string) {
		for _, name := range names {
			out[name] = key{kind: k, effect: e, server: server}
		}
	}
	add(false, text, used, "data-dir", "lb-server-port", "node-name", "pause-image", "private-registry", "resolv-conf", "server",
		"snapshotter", "token", "token-file")
	add(false, flag, used, "debug")
	add(false, csv, used, "node-ip", "node-external-ip")
	add(false, list, used, "kubelet-arg", "kube-proxy-arg", "node-label", "node-taint")
	add(false, text, ignored, "bind-address", "container-runtime-endpoint", "default-runtime", "flannel-cni-conf", "flannel-conf",
		"flannel-iface", "image-credential-provider-bin-dir", "image-credential-provider-config", "image-service-endpoint", "log",
		"vmodule", "vpn-auth", "vpn-auth-file")
	add(false, flag, ignored, "alsologtostderr", "disable-apiserver-lb",
		"disable-default-registry-endpoint", "docker", "enable-pprof", "nonroot-devices",
		"prefer-bundled-bin", "protect-kernel-defaults", "rootless", "selinux", "with-node-id")
	add(false, number, ignored, "v")
	add(false, list, ignored, "airgap-extra-registry", "node-external-dns", "node-internal-dns")

	add(true, text, used, "advertise-address", "agent-token", "agent-token-file", "cluster-domain", "cluster-reset-restore-path",
		"datastore-endpoint", "etcd-s3-access-key", "etcd-s3-bucket", "etcd-s3-bucket-lookup-type", "etcd-s3-endpoint", "etcd-s3-endpoint-ca",
		"etcd-s3-folder", "etcd-s3-proxy", "etcd-s3-region", "etcd-s3-secret-key", "etcd-s3-session-token", "etcd-snapshot-dir",
		"etcd-snapshot-name", "etcd-snapshot-schedule-cron", "secrets-encryption-provider", "service-node-port-range",
		"system-default-registry", "write-kubeconfig", "write-kubeconfig-mode")
	add(true, flag, used, "cluster-init", "cluster-reset", "disable-agent", "disable-apiserver", "disable-cloud-controller",
		"disable-controller-manager", "disable-etcd", "disable-kube-proxy", "disable-scheduler",
		"etcd-disable-snapshots", "etcd-expose-metrics", "etcd-s3", "etcd-s3-insecure", "etcd-s3-skip-ssl-verify", "etcd-snapshot-compress",
		"secrets-encryption")
	add(true, number, used, "advertise-port", "etcd-s3-retention", "etcd-snapshot-retention", "https-listen-port")
	add(true, duration, used, "etcd-s3-timeout")
	add(true, csv, used, "cluster-cidr", "cluster-dns", "service-cidr", "tls-san")
	add(true, csv, ignored, "disable")
	add(true, list, used, "etcd-arg", "kube-apiserver-arg", "kube-controller-manager-arg", "kube-scheduler-arg")
	add(true, list, ignored, "helm-controller-arg", "kube-cloud-controller-manager-arg")
	add(true, duration, ignored, "etcd-snapshot-reconcile-interval")
	add(true, text, ignored, "datastore-cafile", "datastore-certfile", "datastore-keyfile", "default-local-storage-path",
		"egress-selector-mode", "etcd-s3-config-secret", "flannel-backend", "helm-job-image", "servicelb-namespace",
		"write-kubeconfig-group", "write-kubeconfig-name")
	add(true, flag, ignored, "disable-helm-controller", "disable-network-policy", "embedded-registry",
		"flannel-external-ip", "flannel-ipv6-masq", "supervisor-metrics", "tls-san-security")
	if f != flavour.RKE2 {
		return out
	}
	for _, name := range notRKE2 {
		delete(out, name)
	}
	add(true, csv, used, "cni")
	add(true, csv, ignored, "ingress-controller")
	add(true, flag, ignored, "enable-servicelb", "prime")
	for _, c := range StaticPods {
		add(false, list, used, c+"-extra-env", c+"-extra-mount")
	}
	for _, c := range []string{"cloud-controller-manager", "kube-proxy"} { // they are no pods here
		add(false, list, ignored, c+"-extra-env", c+"-extra-mount")
	}
	add(false, text, ignored, "audit-policy-file", "cloud-controller-manager-image", "cloud-provider-config", "cloud-provider-name",
		"etcd-image", "kube-apiserver-image", "kube-controller-manager-image", "kube-proxy-image", "kube-scheduler-image", "kubelet-path",
		"pod-security-admission-config-file", "profile", "runtime-image")
	add(false, flag, ignored, "node-name-from-cloud-provider-metadata")
	add(false, list, ignored, "control-plane-probe-configuration", "control-plane-resource-limits", "control-plane-resource-requests")
	add(false, text, used, "system-default-registry")
	return out
}

// StaticPods are the components that RKE2 runs as static pods and this fixture does, too.
var StaticPods = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// Ignored lists the keys of c that were given and have no effect in this fixture.
func (c Config) Ignored() []string {
	var out []string
	for name := range c.given {
		if keys[name].effect == ignored {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
