package plans

import (
	"slices"
	"strings"
	"time"
)

// certificatePrefix begins the names of certificates among the names of probes.
const certificatePrefix = "certificate:"

// certificateFiles are below the data directory of k3s or RKE2. A distribution has some of them, depending on the machine's roles.
var certificateFiles = []string{
	"agent/client-k3s-controller.crt", "agent/client-kube-proxy.crt", "agent/client-kubelet.crt", "agent/client-rke2-controller.crt",
	"agent/serving-kubelet.crt",
	"server/tls/client-admin.crt", "server/tls/client-auth-proxy.crt", "server/tls/client-controller.crt",
	"server/tls/client-k3s-cloud-controller.crt", "server/tls/client-kube-apiserver.crt", "server/tls/client-rke2-cloud-controller.crt",
	"server/tls/client-scheduler.crt", "server/tls/client-supervisor.crt", "server/tls/etcd/client.crt",
	"server/tls/etcd/peer-server-client.crt", "server/tls/etcd/server-client.crt", "server/tls/serving-kube-apiserver.crt",
}

// CertificateFiles returns the files, relative to the data directory of k3s or RKE2, whose certificates agents watch.
func CertificateFiles() []string { return slices.Clone(certificateFiles) }

// CertificateName is the name among the probe statuses under which an agent reports the certificate in a file, whose path is absolute and
// clean.
func CertificateName(path string) string { return certificatePrefix + path }

// CertificatePath is the path in a name of CertificateName; false for the name of a probe.
func CertificatePath(name string) (path string, is bool) {
	return strings.CutPrefix(name, certificatePrefix)
}

// CertificateStatus is what is reported of a certificate. It is always healthy: hubs that do not know it take it for a probe.
func CertificateStatus(notAfter time.Time) ProbeStatus {
	return ProbeStatus{Healthy: true, CertificateNotAfter: notAfter.UTC()}
}
