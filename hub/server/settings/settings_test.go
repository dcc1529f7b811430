package settings

import "testing"

// TestImages: the names of images may be given with the registry, as that of the hub has to be.
func TestImages(t *testing.T) {
	for _, tt := range []struct{ registry, installer, agent, wantInstaller, wantAgent string }{
		{"", "", "", "rancher/system-agent-installer-k3s:v1.36.3-k3s1", "drover/cluster-agent"},
		{"r.example:5000/m", "", "a/b:v1", "r.example:5000/m/rancher/system-agent-installer-k3s:v1.36.3-k3s1", "r.example:5000/m/a/b:v1"},
		{"r.example", "r.example/i-", "r.example/a/b:v1", "r.example/i-k3s:v1.36.3-k3s1", "r.example/a/b:v1"},
		{"r.example", "r.example.org/i-", "r.example", "r.example/r.example.org/i-k3s:v1.36.3-k3s1", "r.example/r.example"},
	} {
		s := Settings{SystemDefaultRegistry: tt.registry, InstallerImagePrefix: tt.installer, ClusterAgentImage: tt.agent}
		if got := s.InstallerImage("k3s", "v1.36.3+k3s1"); got != tt.wantInstaller {
			t.Errorf("%+v: got the installer %s", tt, got)
		}
		if got := s.AgentImage(); got != tt.wantAgent {
			t.Errorf("%+v: got the agent %s", tt, got)
		}
	}
}
