package render

import (
	"strings"
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestJoinURL(t *testing.T) {
	k3s, rke2, moved := cluster(t, "v1.36.3+k3s1"), cluster(t, "v1.36.3+rke2r1"), cluster(t, "v1.36.3+k3s1")
	moved.Spec.MachineGlobalConfig = config(t, `{"https-listen-port": "7443"}`)
	for want, got := range map[string]string{
		"https://10.0.0.1:6443":  JoinURL(k3s, "10.0.0.1"),
		"https://10.0.0.2:9345":  JoinURL(rke2, "10.0.0.2"),
		"https://10.0.0.3:7443":  JoinURL(moved, "10.0.0.3"),
		"https://[fd00::1]:6443": JoinURL(k3s, "fd00::1"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestListenPort: a server that listens on another port than the others could not be joined, nor reached.
func TestListenPort(t *testing.T) {
	for name, tc := range map[string]struct {
		version, roles, global, selected string
		want                             string
	}{
		"of all":               {k3s, "ec", `{"https-listen-port": "7443"}`, `{}`, ""},
		"of all, and selected": {k3s, "ec", `{"https-listen-port": 7443}`, `{"https-listen-port": 7443}`, ""},
		"selected default":     {k3s, "ec", `{}`, `{"https-listen-port": 6443}`, ""},
		"of workers":           {k3s, "w", `{}`, `{"https-listen-port": 7443}`, ""},
		"of RKE2":              {rke2, "ec", `{}`, `{"https-listen-port": 7443}`, ""},
		"selected": {k3s, "c", `{}`, `{"https-listen-port": 7443}`, "spec.rkeConfig.machineSelectorConfig[0].config.https-listen-port: " +
			"must be set in machineGlobalConfig, for all servers alike: machines and clients use port 6443"},
		"another one": {k3s, "e", `{"https-listen-port": 7443}`, `{"https-listen-port": 8443}`, "clients use port 7443"},
		"removed":     {k3s, "ec", `{"https-listen-port": 7443}`, `{"https-listen-port": null}`, "clients use port 7443"},
	} {
		in := machineOf(t, tc.version, "a", tc.roles)
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.global)
		in.Cluster.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{{Config: config(t, tc.selected)}}
		_, problems := Plan(in)
		if err := problems.Err(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
