package install

import (
	"strings"
	"testing"
)

// TestHostName: a host name that cannot become the name of a Node, or is that of many machines, is warned of before the registration.
func TestHostName(t *testing.T) {
	hub := newTestHub(t)
	t.Run("of the option", func(t *testing.T) {
		out, ok := newMachine(t).run(hub.script(t), nil, "--token", token, "--worker", "--node-name", "my_node")
		if !ok || !strings.Contains(out, "Host name my_node is unsuitable") {
			t.Errorf("The script says: %s", out)
		}
	})
	for name, unsuitable := range map[string]bool{
		"localhost": true, "localhost.localdomain": true, "my_host": true, "Node-1.example.com": false, "localhost-1": false,
	} {
		t.Run(name, func(t *testing.T) {
			run := func(m *machine, want bool, args ...string) {
				t.Helper()
				m.stub("uname", `case ${1:-} in -n) echo `+name+` ;; *) exec `+realProgram(t, "uname")+` "$@" ;; esac`)
				out, ok := m.run(hub.script(t), nil, append([]string{"--token", token, "--worker"}, args...)...)
				if warned := strings.Contains(out, "Host name "+name+" is unsuitable"); !ok || warned != want {
					t.Errorf("The script says: %s", out)
				}
			}
			run(newMachine(t), false, "--node-name", "named")
			m := newMachine(t)
			run(m, unsuitable)
			run(m, false) // a Node may have that name by now
		})
	}
}
