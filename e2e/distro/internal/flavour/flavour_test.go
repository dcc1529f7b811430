package flavour

import "testing"

func TestNames(t *testing.T) {
	for _, tc := range []struct{ version, program, file, variable string }{
		{"v1.36.3+k3s1", "k3s", "/etc/rancher/k3s/k3s.yaml", "K3S_TOKEN"},
		{"", "k3s", "/etc/rancher/k3s/k3s.yaml", "K3S_TOKEN"},
		{"v1.36.3+rke2r1", "rke2", "/etc/rancher/rke2/rke2.yaml", "RKE2_TOKEN"},
	} {
		f := Of(tc.version)
		if f.Program != tc.program || f.Name("/etc/rancher/*/*.yaml") != tc.file || f.Variable("TOKEN") != tc.variable {
			t.Errorf("%s: %+v", tc.version, f)
		}
	}
}
