package install

import (
	"strings"
	"testing"
)

// TestTransactionalDirectories: /etc is in every snapshot of a transactional system, so that images are not kept there. What is configured
// stays.
func TestTransactionalDirectories(t *testing.T) {
	const lines = `read_environment; find_installation; connection=''; write_config`
	configured := `workDirectory: /etc/rancher/agent/var/work
imagesDirectory: "/etc/rancher/agent/var/images"
`
	for name, test := range map[string]struct {
		config string
		env    []string
		want   []string
	}{
		"new": {want: []string{"workDirectory: /var/lib/rancher/agent/work", `imagesDirectory: "/var/lib/rancher/agent/images"`,
			`stateDirectory: "/etc/rancher/agent/var/state"`, `imageCacheDirectory: "/var/lib/rancher/agent"`,
			"connectionInfoFile: /etc/rancher/agent/var/rancher2_connection_info.json"}},
		"a directory of the caller's": {env: []string{"CATTLE_AGENT_VAR_DIR=/srv/v"},
			want: []string{"workDirectory: /srv/v/work", `imagesDirectory: "/srv/v/images"`}},
		"configured": {config: configured, want: strings.Split(strings.TrimSpace(configured), "\n")},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stub("transactional-update", "")
			env := test.env
			if test.config != "" {
				m.write("etc/c/config.yaml", test.config, 0o600)
				env = append(env, "CATTLE_AGENT_CONFIG_DIR="+m.path("etc/c"))
			}
			got := eval(t, m, env, lines) + "\n"
			for _, line := range test.want {
				if !strings.Contains(got, line+"\n") {
					t.Errorf("no line %q in\n%s", line, got)
				}
			}
			if name != "new" && (strings.Contains(got, "stateDirectory") || strings.Contains(got, "imageCacheDirectory")) {
				t.Errorf("the state is elsewhere:\n%s", got)
			}
		})
	}
}
