//go:build e2e && full

package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/plans"
)

const (
	repository = "/root/repository"
	// noOther has apt-get use the repository of the host alone: a lab has no internet.
	noOther = "Dir::Etc::SourceList=" + repository + "/sources.list"
)

// apt runs apt-get with the repository on the host.
func (n *node) apt(args ...string) string {
	n.t.Helper()
	return n.do(aptGet(args...)...)
}

func aptGet(args ...string) []string {
	return append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", noOther, "-o", "Dir::Etc::SourceParts=-",
		"-o", "Dpkg::Use-Pty=0"}, args...)
}

// refuses runs apt-get, which must fail and say so.
func (n *node) refuses(want string, argv ...string) {
	n.t.Helper()
	res, err := n.Exec(n.t.Context(), argv...)
	must(n.t, err)
	if out := res.Stdout + res.Stderr; res.ExitCode == 0 || !strings.Contains(out, want) {
		n.t.Errorf("%s ends with %d: %s", strings.Join(argv, " "), res.ExitCode, out)
	}
}

// standIn puts a package of another project onto the host, which has the files: paths and contents.
func (n *node) standIn(name, version string, files map[string]string) {
	n.t.Helper()
	dir := "/root/" + name
	control := "Package: " + name + "\nVersion: " + version +
		"\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: stand-in\n"
	n.write(dir+"/DEBIAN/control", control, 0o644)
	for path, text := range files {
		n.write(filepath.Join(dir, path), text, 0o755)
	}
	n.do("dpkg-deb", "--root-owner-group", "-b", dir, fmt.Sprintf("%s/%s.deb", repository, name))
}

// index writes the index of the repository, as dpkg-scanpackages of dpkg-dev does, which the host does not have.
func (n *node) index() {
	n.t.Helper()
	n.write(repository+"/sources.list", "deb [trusted=yes] file:"+repository+" ./\n", 0o644)
	n.do("sh", "-euc", `cd `+repository+`
		for deb in *.deb; do
			dpkg-deb -f "$deb"
			printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d ' ' -f 1)"
		done >Packages`)
	n.apt("update")
}

// installed is the version of a package; empty if it is not installed.
func (n *node) installed(name string) string {
	n.t.Helper()
	return n.do("sh", "-c", "dpkg -s "+name+" 2>/dev/null | sed -n '/^Status: install ok installed/,$ s/^Version: //p'")
}

// TestAptHub has apt-get install the hub on a machine with Debian's package hub: another program of the same name, which cannot stay. dpkg
// and apt-get without a permission to remove packages refuse that, in both directions.
func TestAptHub(t *testing.T) {
	t.Parallel()
	n := newNode(t, "apthub")
	n.debs("drover-hub", hubBin(t))
	n.do("install", "-D", "-t", repository, "/root/1.deb", "/root/2.deb")
	n.standIn("hub", "2.14.2~ds1-1", map[string]string{"/usr/bin/hub": "#!/bin/sh\necho another program\n"})
	n.index()
	n.apt("install", "-y", "hub")
	n.refuses("conflicts with hub", "dpkg", "-i", "/root/1.deb")
	n.refuses("Packages need to be removed", aptGet("install", "-y", "--no-remove", "drover-hub")...)
	if got := n.do("hub"); got != "another program" {
		t.Errorf("the program of the other package is %q", got)
	}
	for _, version := range []string{"1.1.0-1", "1.0.0-1"} {
		n.apt("install", "-y", "--allow-downgrades", "drover-hub="+version)
		if hub, drover := n.installed("hub"), n.installed("drover-hub"); hub != "" || drover != version {
			t.Errorf("installed are hub %q and drover-hub %q", hub, drover)
		}
	}
	if got := n.do("hub", "version"); !strings.HasPrefix(got, "hub ") {
		t.Errorf("the program is %q", got)
	}
	n.refuses("Packages need to be removed", aptGet("install", "-y", "--no-remove", "hub")...)
	n.apt("remove", "-y", "drover-hub")
	n.apt("install", "-y", "hub")
	if got := n.do("hub"); got != "another program" {
		t.Errorf("the program of the other package is %q", got)
	}
}

// TestAptAgent has apt-get install the agent on a machine with a package of rancher-system-agent, which it replaces: the new agent runs
// with the identity of the old one. Then it is upgraded, downgraded, removed and installed again.
func TestAptAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t, "aptagent")
	n.debs("drover-agent", repositoryBin(t))
	n.do("install", "-D", "-t", repository, "/root/1.deb", "/root/2.deb")
	n.standIn(service, "0.3.13", map[string]string{"/usr/bin/rancher-system-agent": "#!/bin/sh\nexec sleep infinity\n",
		"/lib/systemd/system/" + service + ".service": "[Service]\nExecStart=/usr/bin/rancher-system-agent\n"})
	n.index()
	n.apt("install", "-y", service)
	n.do("systemctl", "start", service)
	n.connect()
	n.write(configFile, fmt.Sprintf("workDirectory: %s/work\nremoteEnabled: true\nconnectionInfoFile: %s\n", varDir, connectionFile), 0o600)

	n.apt("install", "-y", "drover-agent=1.0.0-1")
	if got := n.installed(service); got != "" {
		t.Errorf("the package %s %s stays", service, got)
	}
	pid := n.running(0)
	until(t, "the agent of the package", func() bool { return n.runsInstalled(pid) })
	n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("one", "echo one >>/root/ran")}})
	applied := n.ended()
	n.refuses("rancher-system-agent", "dpkg", "-i", repository+"/"+service+".deb")

	for _, version := range []string{"1.1.0-1", "1.0.0-1"} {
		n.apt("install", "-y", "--allow-downgrades", "drover-agent="+version)
		until(t, "the agent of "+version, func() bool { return n.runsInstalled(pid) && n.installed("drover-agent") == version })
	}
	if n.pid() != pid {
		t.Error("the agent is another process")
	}
	n.apt("remove", "-y", "drover-agent")
	if n.pid() != 0 || n.read(connectionFile) == "" {
		t.Error("the agent runs without its package, or its identity is lost")
	}
	n.apt("install", "-y", repository+"/2.deb")
	n.running(0)
	n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("two", "echo two >>/root/ran")}})
	until(t, "the next plan", func() bool { return n.status().SuccessCount == applied.SuccessCount+1 })
	if got := n.read("/root/ran"); got != "one\ntwo\n" {
		t.Errorf("ran: %q", got)
	}
	n.do(append([]string{"env", "DROVER_PURGE=1"}, aptGet("purge", "-y", "drover-agent")...)...)
	if n.read(connectionFile) != "" {
		t.Error("DROVER_PURGE=1 keeps the identity")
	}
}
