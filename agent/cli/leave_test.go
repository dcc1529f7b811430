package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestDataDirectoryOfADistribution: data that the uninstall script would leave, and that the next cluster of the machine would start with,
// has to be named by the caller.
func TestDataDirectoryOfADistribution(t *testing.T) {
	m := newFakeMachine(t)
	m.serve()
	agent := &target{configFile: filepath.Join(m.dir, "config.yaml")}
	for directory, named := range map[string]string{"/data/k3s": "", "/data/other": "/data/other", "/var/lib/rancher/k3s/": ""} {
		m.agent.plan = []byte(`{"instructions":[{"name":"install","env":["A=b","K3S_DATA_DIR=` + directory + `"]}]}`)
		t.Setenv("K3S_DATA_DIR", named)
		err := agent.checkDataDirectories(t.Context())
		if directory != "/data/k3s" {
			if err != nil {
				t.Errorf("%s: got %v", directory, err)
			}
			continue
		}
		if err == nil || !strings.HasSuffix(err.Error(), "K3S_DATA_DIR=/data/k3s system-agent leave --purge-distribution") {
			t.Errorf("%s: got %v", directory, err)
		}
	}
}
