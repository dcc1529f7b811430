package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProbesOfComponents: what does not run or serves nothing is not probed, and what listens at one address is probed there.
func TestProbesOfComponents(t *testing.T) {
	const manager, scheduler, kubelet = "kube-controller-manager", "kube-scheduler", "kubelet"
	for name, tc := range map[string]struct {
		config string
		want   map[string]string
	}{
		"all": {`{}`, map[string]string{manager: "https://127.0.0.1:10257/healthz", scheduler: "https://127.0.0.1:10259/healthz",
			kubelet: "http://127.0.0.1:10248/healthz"}},
		"without a scheduler": {`{"disable-scheduler": "true"}`, map[string]string{manager: "https://127.0.0.1:10257/healthz",
			kubelet: "http://127.0.0.1:10248/healthz"}},
		"without a controller manager": {`{"disable-controller-manager": true, "disable-scheduler": false}`,
			map[string]string{scheduler: "https://127.0.0.1:10259/healthz", kubelet: "http://127.0.0.1:10248/healthz"}},
		"no ports": {`{"kube-controller-manager-arg": "secure-port=0", "kube-scheduler-arg": ["secure-port=0"], "kubelet-arg": "healthz-port=0"}`,
			map[string]string{}},
		"other addresses": {`{"kube-controller-manager-arg": "bind-address=10.0.0.5", "kube-scheduler-arg": ["bind-address=fd00::5"],
			"kubelet-arg": {"healthz-bind-address": "10.0.0.5"}}`, map[string]string{manager: "https://10.0.0.5:10257/healthz",
			scheduler: "https://[fd00::5]:10259/healthz", kubelet: "http://10.0.0.5:10248/healthz"}},
		"all addresses": {`{"kube-controller-manager-arg": "bind-address=0.0.0.0", "kube-scheduler-arg": "bind-address=::",
			"kubelet-arg": "healthz-bind-address=0.0.0.0"}`, map[string]string{manager: "https://127.0.0.1:10257/healthz",
			scheduler: "https://127.0.0.1:10259/healthz", kubelet: "http://127.0.0.1:10248/healthz"}},
	} {
		in := machineOf(t, k3s, "a", "ecw")
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		plan, _ := Plan(in)
		got := map[string]string{}
		for probe, p := range plan.Probes {
			if probe != APIServerProbe {
				got[probe] = p.HTTPGet.URL
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
