//go:build e2e && full

package agent

import (
	"net/http"
	"strings"
	"testing"
)

// TestHubReturns upgrades and downgrades the package of a hub, removes, purges and installs it again: each time the hub comes back with the
// objects that it had. A hub that was stopped stays so.
func TestHubReturns(t *testing.T) {
	t.Parallel()
	n := newNode(t, "hubreturns")
	n.debs("drover-hub", hubBin(t))
	n.dpkg("-i", "/root/1.deb")
	configure := func() {
		n.write("/etc/default/drover-hub", "HUB_FLAGS=--server-url https://"+n.IP().String()+":8443\n", 0o644)
		n.do("systemctl", "enable", "--now", hubService)
	}
	configure()
	until(t, "a hub that is ready", n.hubReady)
	n.postNamespace("kept", http.StatusCreated)

	n.dpkg("-i", "/root/2.deb")
	n.hubReturned("an upgrade")
	n.dpkg("-i", "/root/1.deb")
	n.hubReturned("a downgrade")
	n.dpkg("-r", "drover-hub")
	n.hubEnded("without its package")
	n.dpkg("-i", "/root/2.deb")
	n.hubReturned("a removal")
	n.do("systemctl", "stop", hubService)
	n.dpkg("-i", "/root/1.deb")
	n.hubEnded("after a downgrade although it was stopped")
	n.dpkg("-P", "drover-hub")
	n.dpkg("-i", "/root/2.deb")
	n.hubEnded("after a purge, with no flags")
	configure()
	n.hubReturned("a purge")
}

// hubReturned waits for the hub, and fails the test if its objects are lost.
func (n *node) hubReturned(after string) {
	n.t.Helper()
	until(n.t, "a hub that is ready after "+after, n.hubReady)
	n.postNamespace("kept", http.StatusConflict)
}

// hubEnded fails the test if the hub runs.
func (n *node) hubEnded(when string) {
	n.t.Helper()
	if got := n.do("sh", "-c", "pgrep -x hub || true"); got != "" {
		n.t.Error("the hub runs " + when)
	}
}

// postNamespace creates a Namespace, which must be answered with a status.
func (n *node) postNamespace(name string, status int) {
	n.t.Helper()
	client, host := n.hubClient("/var/lib/drover/hub/admin.kubeconfig")
	response, err := client.Post(host+"/api/v1/namespaces", "application/json",
		strings.NewReader(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+name+`"}}`))
	must(n.t, err)
	must(n.t, response.Body.Close())
	if response.StatusCode != status {
		n.t.Errorf("creating a Namespace is answered with %s, want %d", response.Status, status)
	}
}
