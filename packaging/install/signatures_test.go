package install

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPlanSignatures: a machine that gets its first agent from a hub that signs plans takes no others; one that had an agent goes on as
// before.
func TestPlanSignatures(t *testing.T) {
	signing := strings.Replace(connectionInfo, "{", `{"planSigningKey":"8gFNZ/mIAKvWvxneCzAj9O4s+caWDnSJP2GiupmWDJQ=",`, 1)
	for _, tt := range []struct {
		name    string
		answer  string
		machine func(*machine)
		env     []string
		want    string
	}{
		{name: "new machine", answer: signing, want: "enforce"},
		{name: "hub without signatures", answer: connectionInfo},
		{name: "hub that leaves the key empty", answer: strings.Replace(connectionInfo, "{", `{"planSigningKey":"",`, 1)},
		{name: "caller decides", answer: signing, env: []string{"CATTLE_AGENT_PLAN_SIGNATURES=warn"}, want: "warn"},
		{name: "rancher-system-agent is there", answer: signing, machine: original},
		{name: "registered by an earlier version", answer: signing, machine: func(m *machine) {
			m.write("etc/rancher/agent/config.yaml",
				"remoteEnabled: true\nconnectionInfoFile: "+m.path("var/lib/agent/rancher2_connection_info.json")+"\n", 0o600)
			m.write("var/lib/agent/rancher2_connection_info.json", connectionInfo, 0o600)
		}},
		{name: "configured by hand as JSON", answer: signing, machine: func(m *machine) {
			m.write("etc/rancher/agent/config.yaml", `{"remoteEnabled": true}`, 0o600)
		}},
		{name: "registered by an earlier version and told to warn", answer: signing, machine: func(m *machine) {
			m.write("etc/rancher/agent/config.yaml", "remoteEnabled: true\nplanSignatures: \"warn\"\n", 0o600)
		}, want: "warn"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hub, m := newTestHub(t), newMachine(t)
			hub.connect = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(tt.answer)) }
			if tt.machine != nil {
				tt.machine(m)
			}
			script := hub.script(t)
			// The second run finds what the first has written.
			for _, run := range []string{"first", "second"} {
				if _, ok := m.run(script, tt.env, "--token", token, "--worker"); !ok {
					t.Fatalf("the %s run fails", run)
				}
				config := m.read("etc/rancher/agent/config.yaml")
				var want []string
				if tt.want != "" {
					want = []string{`planSignatures: "` + tt.want + `"`}
				}
				if got := regexp.MustCompile(`(?m)^planSignatures.*$`).FindAllString(config, -1); !slices.Equal(got, want) {
					t.Errorf("after the %s run, want %q:\n%s", run, tt.want, config)
				}
			}
		})
	}
}
