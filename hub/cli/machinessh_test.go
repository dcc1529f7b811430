package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/hub/access/machinessh"
)

// TestSSHOptions: an idle login is not ended by a load balancer in front of the hub, and one whose machine has gone ends.
func TestSSHOptions(t *testing.T) {
	access := &machinessh.Access{UID: "uid"}
	options := sshOptions(access, "/run/100%/agent", "hub proxy")
	for _, want := range []string{"ProxyCommand=hub proxy", "ServerAliveInterval=15", "ServerAliveCountMax=8", "HostKeyAlias=uid",
		`IdentityAgent="/run/100%%/agent"`} {
		if !slices.Contains(options, want) {
			t.Errorf("the options lack %s: %q", want, options)
		}
	}
	// Without the hub, the user's own configuration counts.
	if direct := strings.Join(sshOptions(access, "/run/agent", ""), " "); strings.Contains(direct, "ServerAlive") {
		t.Errorf("the options of a direct connection are %s", direct)
	}
}
