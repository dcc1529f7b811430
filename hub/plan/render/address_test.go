package render

import (
	"slices"
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

// TestAuthEndpointName: the certificate of a server is for the name of the authorized cluster endpoint, also if a port follows it.
func TestAuthEndpointName(t *testing.T) {
	for fqdn, want := range map[string]string{
		"api.example.com": `"api.example.com"`, "api.example.com:6443": `"api.example.com"`, "[2001:db8::9]:6443": `"2001:db8::9"`,
		"https://api.example.com:6443": "", "api.example.com/": "",
	} {
		in := machineOf(t, k3s, "a", "ecwi")
		in.Cluster.Spec.LocalClusterAuthEndpoint = rkev1.LocalClusterAuthEndpoint{Enabled: true, FQDN: fqdn}
		plan, problems := Plan(in)
		got := fileOf(t, plan, "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml")
		if !strings.Contains(got, want) || strings.Contains(got, "6443\"") || want == "" && strings.Contains(got, "api.example.com") {
			t.Errorf("%s: the configuration is %s", fqdn, got)
		}
		warns := slices.ContainsFunc(problems, func(p Problem) bool { return p.Field == "spec.localClusterAuthEndpoint.fqdn" && !p.Kept })
		if warns != (want == "") || problems.Err() != nil {
			t.Errorf("%s: problems %+v", fqdn, problems)
		}
	}
}
