package cli

import (
	"bytes"
	"path"
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

// TestConfirmIdentity: who keeps Kubernetes reads what is lost with the identity before it is removed.
func TestConfirmIdentity(t *testing.T) {
	scripts := []string{"/usr/local/bin/k3s-uninstall.sh"}
	for name, tc := range map[string]struct {
		purge   bool
		scripts []string
		warns   bool
	}{
		"Kubernetes stays":      {scripts: scripts, warns: true},
		"Kubernetes is removed": {purge: true, scripts: scripts},
		"no Kubernetes":         {},
	} {
		var out bytes.Buffer
		if _, err := confirm(strings.NewReader("no\n"), &out, tc.purge, tc.scripts); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "copy cattle-id and machine-secret") != tc.warns {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// TestRunUnits: the patterns are of the units of instructions, and of no other unit.
func TestRunUnits(t *testing.T) {
	for unit, want := range map[string]bool{
		"system-agent-0123456789ab-2-3.service": true, "system-agent-abcdef-0123456789ab-2-3.service": true,
		"system-agent.service": false, "rancher-system-agent.service": false, "system-agent-upgrade.service": false,
		"system-agent-0123456789ab.service": false,
	} {
		got := false
		for _, pattern := range runUnits() {
			matches, err := path.Match(pattern, unit)
			if err != nil {
				t.Fatal(err)
			}
			got = got || matches
		}
		if got != want {
			t.Errorf("%s: got %t", unit, got)
		}
	}
}
