package render

import (
	"strings"
	"testing"
)

// TestCertDir: a component does not use its cert-dir where the distribution gives it a certificate, and its probe must not wait for a file
// there.
func TestCertDir(t *testing.T) {
	for version, want := range map[string]string{
		"v1.36.3+k3s1": "/var/lib/rancher/k3s/server/tls/kube-scheduler/kube-scheduler.crt",
		"v1.32.3+k3s1": "/etc/mine/kube-scheduler.crt",
	} {
		in := machineOf(t, version, "a", "ec")
		in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kube-scheduler-arg": ["cert-dir=/etc/mine"]}`)
		plan, _ := Plan(in)
		if got := plan.Probes["kube-scheduler"].HTTPGet.CACert; got != want {
			t.Errorf("%s: the authority is %s, want %s", version, got, want)
		}
		if dirs := strings.Count(fileOf(t, plan, "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"), "cert-dir="); dirs != 2 {
			t.Errorf("%s: %d directories for certificates", version, dirs)
		}
	}
}
