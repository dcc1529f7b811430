package hosts

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPickSubnet(t *testing.T) {
	all := map[int]string{}
	for n := range 256 {
		all[n] = "x"
	}
	for name, test := range map[string]struct {
		wanted int
		used   map[int]string
		want   int
		err    string
	}{
		"first":     {-1, nil, 0, ""},
		"next free": {-1, map[int]string{0: "a", 1: "b", 3: "c"}, 2, ""},
		"wanted":    {7, map[int]string{0: "a"}, 7, ""},
		"taken":     {7, map[int]string{7: "demo"}, 0, `subnet 10.88.7.0/24 is taken by lab "demo"`},
		"too large": {256, nil, 0, "not within 0 to 255"},
		"none left": {-1, all, 0, "no subnet"},
	} {
		got, err := pickSubnet(test.wanted, test.used)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}

func TestPickIndex(t *testing.T) {
	hosts := map[string]HostRecord{}
	for n := firstHostIndex; n <= lastHostIndex; n++ {
		got, err := pickIndex(hosts)
		if err != nil || got != n {
			t.Fatalf("%d, %v; want %d", got, err, n)
		}
		hosts[address(0, n).String()] = HostRecord{Index: n}
	}
	if _, err := pickIndex(hosts); err == nil {
		t.Error("a full lab takes another host")
	}
	delete(hosts, "10.88.0.20")
	if got, err := pickIndex(hosts); err != nil || got != 20 {
		t.Errorf("%d, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"demo": true, "a": true, "a-1": true, "": false, "-a": false, "a-": false, "A": false,
		"../x": false, "a b": false, strings.Repeat("a", 20): true, strings.Repeat("a", 21): false} {
		if err := checkName("lab", name, maxLabName); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestBaseNameFollowsItsContents(t *testing.T) {
	files := fstest.MapFS{"etc/a": {Data: []byte("1")}}
	one, err := baseName([]string{"curl"}, files)
	if err != nil {
		t.Fatal(err)
	}
	same, _ := baseName([]string{"curl"}, fstest.MapFS{"etc/a": {Data: []byte("1")}})
	packages, _ := baseName([]string{"curl", "sudo"}, files)
	content, _ := baseName([]string{"curl"}, fstest.MapFS{"etc/a": {Data: []byte("2")}})
	if one != same || one == packages || one == content || packages == content {
		t.Error(one, same, packages, content)
	}
}

func TestMissingPackages(t *testing.T) {
	have := map[string]bool{"ip": true, "nsenter": true, "mount": true, "losetup": true, "mkfs.ext4": true}
	packages, programs := missingPackages(map[string]string{"kubectl": "kubectl"}, func(p string) bool { return have[p] })
	if diff := cmp.Diff([]string{"debootstrap", "kubectl", "systemd-container"}, packages); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"debootstrap", "kubectl", "systemd-nspawn"}, programs); diff != "" {
		t.Error(diff)
	}
}

const (
	mountsV1 = `30 25 0:27 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
32 30 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:30 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
`
	mountsHybrid = mountsV1 + "34 30 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	mountsV2     = "30 25 0:27 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n"
)

func TestParseCgroups(t *testing.T) {
	for name, test := range map[string]struct {
		mounts  string
		systemd bool
		want    cgroups
	}{
		"v1 alone":          {mountsV1, false, cgroups{Roots: []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"}}},
		"v1, systemd":       {mountsV1, true, cgroups{Systemd: true, Roots: []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"}}},
		"v2 alone":          {mountsV2, false, cgroups{Unified: true, Roots: []string{"/sys/fs/cgroup"}}},
		"v2, systemd":       {mountsV2, true, cgroups{Unified: true, Systemd: true}},
		"hybrid, systemd":   {mountsHybrid, true, cgroups{Systemd: true, Roots: []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"}}},
		"not mounted twice": {mountsV2 + mountsV2, false, cgroups{Unified: true, Roots: []string{"/sys/fs/cgroup"}}},
	} {
		got, err := parseCgroups(test.mounts, test.systemd)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	if _, err := parseCgroups("", false); err == nil {
		t.Error("no control groups at all: no error")
	}
}

func TestMountsBelow(t *testing.T) {
	info := "1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / /lab rw - tmpfs x rw\n3 2 0:3 / /lab/a\\040b rw - tmpfs x rw\n4 1 0:4 / /labs rw - tmpfs x rw\n"
	if diff := cmp.Diff([]string{"/lab/a b", "/lab"}, mountsBelow(info, "/lab")); diff != "" {
		t.Error(diff)
	}
}

func TestBootArgs(t *testing.T) {
	m := machine{Name: "demo-node1", Root: "/r", Netns: "/run/netns/demo-node1", Binds: []bind{{"/v/k", "/var/lib/kubelet"}}}
	plain := append([]string{"sh", "-c", untilOff, "sh"}, nspawnArgs(m)...)
	if diff := cmp.Diff(plain, bootArgs(m)); diff != "" {
		t.Error(diff)
	}
	m.Groups, m.Unit = []string{"/g/cpu", "/g/memory"}, "u.service"
	got := bootArgs(m)
	want := []string{"systemd-run", "--quiet", "--collect", "--unit=u.service", "--property=Delegate=yes", "--property=KillMode=mixed",
		"--property=TasksMax=infinity", "--service-type=exec", "--pipe", "--wait", "--",
		"sh", "-c", enterGroups, "sh", "2", "/g/cpu", "/g/memory"}
	if diff := cmp.Diff(append(want, plain...), got); diff != "" {
		t.Error(diff)
	}
}

func TestIsLeader(t *testing.T) {
	for name, test := range map[string]struct {
		status string
		want   bool
	}{
		"systemd in a host":  {"Name:\tsystemd\nNSpid:\t812\t1\n", true},
		"nspawn before exec": {"Name:\t(sd-namens)\nNSpid:\t812\t1\n", false},
		"not the first":      {"Name:\tsystemd\nNSpid:\t812\t40\n", false},
		"first in a pod":     {"Name:\tsystemd\nNSpid:\t812\t40\t1\n", false},
		"of this machine":    {"Name:\tsystemd\nNSpid:\t1\n", false},
	} {
		if got := isLeader(test.status); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestEnterGroups(t *testing.T) {
	dir := t.TempDir()
	out, err := run(t.Context(), "sh", "-c", enterGroups, "sh", "2", dir+"/a", dir+"/b", "echo", "hello world")
	if err != nil || out != "hello world\n" {
		t.Fatalf("%q, %v", out, err)
	}
	if out, err := run(t.Context(), "cat", dir+"/a", dir+"/b"); err != nil || out != "0\n0\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestUntilOff(t *testing.T) {
	file := t.TempDir() + "/boots"
	// It reboots twice, and then goes off with a code of its own.
	program := `echo boot >>"$1"; [ "$(wc -l <"$1")" -gt 2 ] || exit 133; exit 7`
	_, err := run(t.Context(), "sh", "-c", untilOff, "sh", "sh", "-c", program, "sh", file)
	if exit := (&exec.ExitError{}); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("ended with %v", err)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "boot\nboot\nboot\n" {
		t.Errorf("booted: %q, %v", raw, err)
	}
	// Asked to end, it asks the machine, and waits for it.
	cmd := exec.Command("sh", "-c", untilOff, "sh", "sh", "-c",
		`trap 'sleep 0.2; echo off >>"$1"; exit 0' TERM; echo on >>"$1"; while :; do sleep 0.05; done`, "sh", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for raw := []byte(nil); !strings.Contains(string(raw), "on\n"); raw, _ = os.ReadFile(file) {
		time.Sleep(10 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if raw, err := os.ReadFile(file); err != nil || !strings.HasSuffix(string(raw), "on\noff\n") {
		t.Errorf("the machine was not waited for: %q, %v", raw, err)
	}
}

func TestNetworkCommandsStayInTheirNamespaces(t *testing.T) {
	commands := append(hubNetwork("demo-hub", address(3, 1)), hostNetwork("demo-hub", "demo-node1", address(3, 11), address(3, 1))...)
	for _, argv := range commands {
		if argv[1] != "-n" && argv[1] != "netns" {
			t.Errorf("%v touches the machine's own network", argv)
		}
	}
}

func TestMirrorOf(t *testing.T) {
	targets := "bookworm-updates main http://mirror/updates\nbookworm contrib http://mirror/contrib\nbookworm main http://mirror/debian\n"
	if got := mirrorOf("bookworm", targets); got != "http://mirror/debian" {
		t.Errorf("got %q", got)
	}
	if got := mirrorOf("trixie", targets); got != "" {
		t.Errorf("got %q for a suite that the machine does not have", got)
	}
}
