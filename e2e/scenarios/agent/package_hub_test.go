//go:build e2e

package agent

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/drover-dev/drover/e2e/readme"
)

const hubService = "drover-hub"

// hubBin is a directory with the binaries for the package of the hub, of this architecture alone.
func hubBin(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	must(t, os.Symlink(filepath.Join(repositoryBin(t), "assets"), filepath.Join(bin, "assets")))
	must(t, os.Mkdir(filepath.Join(bin, "linux-"+runtime.GOARCH), 0o755))
	must(t, os.Symlink(filepath.Join(repositoryBin(t), "hub"), filepath.Join(bin, "linux-"+runtime.GOARCH, "hub")))
	return bin
}

// hubReady reports whether the hub on the host is ready. The webhooks are before the gateway is, which needs filled caches.
func (n *node) hubReady() bool {
	for _, url := range []string{"http://127.0.0.1:9440/readyz", "https://127.0.0.1:8443/healthz"} {
		if res, err := n.Exec(n.t.Context(), "curl", "-skf", url); err != nil || res.ExitCode != 0 {
			return false
		}
	}
	return true
}

// TestHubPackage installs the package of the hub and runs the hub in its hardened unit, as a user of its own: it becomes ready, hands out
// agents, runs node drivers, is restarted by an upgrade, and keeps its data when the package goes.
func TestHubPackage(t *testing.T) {
	t.Parallel()
	n := newNode(t, "hubpackage")
	n.debs("drover-hub", hubBin(t))
	show := func(property string) string {
		return n.do("systemctl", "show", "--property="+property, "--value", hubService)
	}
	script, err := readme.Script("../../..", readme.OneMachine, "drover-hub_0.1.0-1_amd64.deb", "/root/1.deb", "hub.example.com",
		n.IP().String())
	must(t, err)
	install, start, found := strings.Cut(script, "\n")
	if install != "dpkg -i /root/1.deb" || !found {
		t.Fatalf("the README installs the hub with %q", install)
	}
	n.dpkg("-i", "/root/1.deb")
	if show("UnitFileState") != "disabled" || show("ActiveState") != "inactive" {
		t.Errorf("after the installation the unit is %s and %s", show("UnitFileState"), show("ActiveState"))
	}
	if got := n.do("systemd-analyze", "verify", "--man=no", hubService+".service"); got != "" {
		t.Errorf("systemd finds fault with the unit: %s", got)
	}
	kubeconfig := n.do("bash", "-euc", start+"echo $KUBECONFIG")
	until(t, "a hub that is ready", n.hubReady)
	if got := n.do("sh", "-c", "ps -o user= -p $(systemctl show --property=MainPID --value "+hubService+")"); got != "drover" {
		t.Errorf("the hub runs as %s", got)
	}
	if got := n.do("stat", "-c", "%U %a", kubeconfig); got != "drover 600" {
		t.Errorf("the administrator's kubeconfig belongs to %s", got)
	}
	if got := n.do("sh", "-c", "curl -skf https://127.0.0.1:8443/assets/system-agent-arm64 | sha256sum | cut -d ' ' -f 1"); !strings.HasPrefix(
		n.read("/usr/lib/drover/assets/system-agent-arm64.sha256"), got) {
		t.Errorf("the agent for arm64 has the checksum %s", got)
	}
	n.runsDrivers(kubeconfig)
	pid := show("MainPID")
	n.dpkg("-i", "/root/2.deb")
	until(t, "a hub that is ready after the upgrade", n.hubReady)
	if show("MainPID") == pid || !strings.Contains(n.read("/etc/default/drover-hub"), "--server-url") {
		t.Error("the upgrade does not restart the hub, or replaces its flags")
	}
	n.dpkg("-r", "drover-hub")
	if got := n.do("sh", "-c", "pgrep -x hub || true"); got != "" {
		t.Error("the hub runs without its package")
	}
	n.dpkg("-P", "drover-hub")
	if n.read("/var/lib/drover/hub/tls/service-account.key") == "" {
		t.Error("the purge removes the data of the hub")
	}
	if left := n.do("sh", "-c", "find /etc /usr -name '*drover*' | sort"); left != "" {
		t.Errorf("after the purge:\n%s", left)
	}
}
