package flavour

import "testing"

func TestNames(t *testing.T) {
	for _, tc := range []struct{ version, program, file, variable string }{
		{"v1.36.3+k3s1", "k3s", "/etc/rancher/k3s/k3s.yaml", "K3S_TOKEN"},
		{"", "k3s", "/etc/rancher/k3s/k3s.yaml", "K3S_TOKEN"},
	} {
		f := Of(tc.version)
		if f.Program != tc.program || f.Name("/etc/rancher/*/*.yaml") != tc.file || f.Variable("TOKEN") != tc.variable {
			t.Errorf("%s: %+v", tc.version, f)
		}
	}
}
