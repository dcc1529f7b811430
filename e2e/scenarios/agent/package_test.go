//go:build e2e

package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/plans"
)

// madeDebs are functions that make the packages of a name in two versions, each once for all tests, and return their paths.
var madeDebs sync.Map

// debs puts a deb package in two versions, from the binaries in bin, onto the host, as /root/1.deb and /root/2.deb.
func (n *node) debs(name, bin string) {
	n.t.Helper()
	once, _ := madeDebs.LoadOrStore(name, sync.OnceValues(func() ([]string, error) { return makeDebs(n.t.Context(), name, bin) }))
	paths, err := once.(func() ([]string, error))()
	must(n.t, err)
	for i, path := range paths {
		n.copy(path, "/root/"+strconv.Itoa(i+1)+".deb")
	}
}

// makeDebs makes a package in the directory of the lab, which goes with it.
func makeDebs(ctx context.Context, name, bin string) ([]string, error) {
	var paths []string
	for _, version := range []string{"v1.0.0", "v1.1.0"} {
		out := filepath.Join(lab.Dir, "packages", name, version)
		cmd := exec.CommandContext(ctx, "go", "run", ".", "-package", name, "-arch", runtime.GOARCH, "-version", version,
			"-source", "../..", "-bin", bin, "-out", out, "-source-date-epoch", "1767225600")
		cmd.Dir = "../../../packaging/packages"
		if output, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("making the package %s: %w\n%s", name, err, output)
		}
		found, err := filepath.Glob(out + "/*.deb")
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("got the packages %v", found)
		}
		paths = append(paths, found[0])
	}
	return paths, nil
}

// repositoryBin is where the Makefile puts binaries.
func repositoryBin(t *testing.T) string {
	t.Helper()
	bin, err := filepath.Abs("../../../bin")
	must(t, err)
	return bin
}

// dpkg runs dpkg, and fails the test if a script of the package reports something.
func (n *node) dpkg(args ...string) {
	n.t.Helper()
	if out := n.do(append([]string{"sh", "-c", `dpkg "$@" 2>&1`, "dpkg"}, args...)...); regexp.MustCompile(`(?m)^drover-(agent|hub): `).MatchString(out) {
		n.t.Errorf("dpkg %s:\n%s", strings.Join(args, " "), out)
	}
}

// show is a property of the agent's unit.
func (n *node) show(property string) string {
	n.t.Helper()
	return n.do("systemctl", "show", "--property="+property, "--value", service)
}

// runsInstalled reports whether the process executes the binary that is installed.
func (n *node) runsInstalled(pid int) bool {
	runs, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	installed, err2 := os.Stat(n.Path("/usr/bin/rancher-system-agent"))
	return err == nil && err2 == nil && os.SameFile(runs, installed)
}

// TestPackage takes a machine through the life of the deb package: installed before it is registered, upgraded while it applies a plan,
// downgraded, removed, installed again, and purged.
func TestPackage(t *testing.T) {
	t.Parallel()
	n := newNode(t, "package")
	n.debs("drover-agent", repositoryBin(t))
	n.dpkg("-i", "/root/1.deb")
	n.do("systemctl", "start", service)
	for property, want := range map[string]string{
		"UnitFileState": "enabled", "ActiveState": "inactive", "ConditionResult": "no", "NRestarts": "0",
	} {
		if got := n.show(property); got != want {
			t.Errorf("before the registration %s is %s, want %s", property, got, want)
		}
	}
	if got := n.do("systemd-analyze", "verify", service+".service"); got != "" {
		t.Errorf("systemd finds fault with the unit: %s", got)
	}

	n.connect()
	if said := n.install(); !strings.Contains(said, "Using the agent of the package drover-agent") {
		t.Errorf("the script says:\n%s", said)
	}
	pid := n.running(0)
	left := n.do("sh", "-c", "ls -d /usr/local/bin/*system-agent* /etc/systemd/system/"+service+".service 2>/dev/null || true")
	if left != "" {
		t.Errorf("the script installed\n%s", left)
	}

	n.upgradeInTheMiddle(pid)
	n.dpkg("-i", "/root/1.deb") // a downgrade
	until(t, "the older binary", func() bool { return n.runsInstalled(pid) })
	n.chroot(pid)
	n.stopped(pid)
	n.removed()
	n.purged()
}

// upgradeInTheMiddle upgrades the package while an instruction runs: the instruction continues and is reported once, and then the same
// process executes the new binary.
func (n *node) upgradeInTheMiddle(pid int) {
	n.t.Helper()
	checksum := n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("slow", slow)}})
	until(n.t, "the slow instruction", func() bool { return n.read("/root/slow") != "" })
	shellPID := n.do("pgrep", "-o", "-f", "sh -c echo started")
	n.dpkg("-i", "/root/2.deb")
	time.Sleep(time.Second) // for what must not happen
	if n.pid() != pid || n.runsInstalled(pid) {
		n.t.Error("the agent does not finish its plan")
	}
	if got := n.do("pgrep", "-o", "-f", "sh -c echo started"); got != shellPID {
		n.t.Errorf("the instruction is process %s, and was %s", got, shellPID)
	}
	n.hub.Requests()
	n.write("/root/go", "", 0o600)
	status := n.ended()
	if status.State != plans.StateSucceeded || status.AppliedChecksum != checksum || status.SuccessCount != 1 ||
		string(status.AppliedOutput["slow"]) != "it is done\n" || n.read("/root/slow") != "started\n" {
		n.t.Errorf("ran %q, got %+v", n.read("/root/slow"), status)
	}
	until(n.t, "the new binary", func() bool { return n.runsInstalled(pid) })
	if n.pid() != pid || n.show("NRestarts") != "0" {
		n.t.Errorf("the agent was restarted: process %d was %d", n.pid(), pid)
	}
	until(n.t, "an active service", func() bool { return n.show("ActiveState") == "active" })
	time.Sleep(time.Second) // what would be reported twice would be so soon
	puts := 0
	for _, request := range n.hub.Requests() {
		if request == "PUT" {
			puts++
		}
	}
	if puts > 2 { // the outcome, and progress that is cleared
		n.t.Errorf("%d reports", puts)
	}
}

// chroot upgrades the package where systemd does not run, as in a chroot: nothing happens to the agent.
func (n *node) chroot(pid int) {
	n.t.Helper()
	n.do("unshare", "--mount", "sh", "-ec",
		"mount -t tmpfs tmpfs /run; dpkg -i /root/2.deb >/dev/null 2>&1; [ -z \"$(ls /run/drover* 2>/dev/null)\" ]")
	time.Sleep(time.Second) // for what must not happen
	if n.pid() != pid || n.runsInstalled(pid) {
		n.t.Error("in a chroot the package acts on the agent")
	}
	n.dpkg("-i", "/root/1.deb")
	until(n.t, "the installed binary", func() bool { return n.runsInstalled(pid) })
}

// stopped upgrades an agent that the administrator has stopped and disabled: it stays so.
func (n *node) stopped(pid int) {
	n.t.Helper()
	n.do("systemctl", "disable", "--now", service)
	n.dpkg("-i", "/root/2.deb")
	if n.pid() != 0 || n.show("UnitFileState") != "disabled" {
		n.t.Errorf("an upgrade started the agent, or enabled it: %s", n.show("UnitFileState"))
	}
	n.do("systemctl", "enable", "--now", service)
	n.running(pid)
}

// removed removes the package and installs it again: only that stops and starts the agent, which keeps identity and applied plan.
func (n *node) removed() {
	n.t.Helper()
	n.dpkg("-r", "drover-agent")
	if n.pid() != 0 {
		n.t.Error("the agent runs without its package")
	}
	n.dpkg("-i", "/root/1.deb")
	n.running(0)
	if n.show("UnitFileState") != "enabled" {
		n.t.Errorf("after the second installation the unit is %s", n.show("UnitFileState"))
	}
	n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("last", "echo last >>/root/slow")}})
	until(n.t, "the next plan", func() bool { return n.read("/root/slow") == "started\nlast\n" })
}

// purged purges the package twice: what identifies the machine outlives it, unless DROVER_PURGE=1.
func (n *node) purged() {
	n.t.Helper()
	n.dpkg("-P", "drover-agent")
	left := func() string {
		return n.do("sh", "-c",
			"find /etc /usr /var/lib/rancher \\( -name '*system-agent*' -o -name '*drover*' -o -path '/*/rancher/agent' \\) | sort")
	}
	if got := left(); got != "/etc/rancher/agent\n/etc/systemd/system/"+service+".env\n"+varDir || n.read(configFile) == "" || n.pid() != 0 {
		n.t.Errorf("after the purge:\n%s", got)
	}
	n.dpkg("-i", "/root/2.deb")
	n.running(0)
	n.do("env", "DROVER_PURGE=1", "dpkg", "-P", "drover-agent")
	if got := left(); got != "/etc/systemd/system/"+service+".env" {
		n.t.Errorf("after the purge with DROVER_PURGE=1:\n%s", got)
	}
}

// TestPackageOverScript installs the package on a machine with an agent of the install script. The agent stays as it is until somebody
// says so.
func TestPackageOverScript(t *testing.T) {
	t.Parallel()
	n := newNode(t, "overscript")
	n.debs("drover-agent", repositoryBin(t))
	n.connect()
	n.install()
	pid := n.running(0)
	out := n.do("sh", "-c", "dpkg -i /root/1.deb 2>&1")
	if !strings.Contains(out, "run \"/usr/bin/rancher-system-agent join\" to replace it") {
		t.Errorf("dpkg says:\n%s", out)
	}
	time.Sleep(time.Second) // for what must not happen
	if n.pid() != pid {
		t.Error("the package acts on an agent that is not its own")
	}
	n.do("/usr/bin/rancher-system-agent", "join")
	pid = n.running(pid)
	until(t, "the agent of the package", func() bool { return n.runsInstalled(pid) })
	got := strings.TrimPrefix(n.show("FragmentPath"), "/usr")
	if got != "/lib/systemd/system/"+service+".service" {
		t.Errorf("the unit is %s", got)
	}
	if left := n.do("sh", "-c", "ls -d /usr/local/bin/*system-agent* 2>/dev/null || true"); left != "" {
		t.Errorf("left of the script's installation:\n%s", left)
	}
	if got := n.do("systemctl", "is-enabled", service); got != "enabled" {
		t.Errorf("the unit is %s", got)
	}
	n.dpkg("-i", "/root/2.deb")
	until(t, "the upgraded agent", func() bool { return n.pid() == pid && n.runsInstalled(pid) })
	n.do("/usr/bin/rancher-system-agent", "leave", "--yes")
	if n.pid() != 0 || n.read(configFile) != "" || n.read("/usr/lib/rancher-system-agent/packaged") == "" {
		t.Error("leave keeps the agent running, its configuration, or removes files of the package")
	}
}
