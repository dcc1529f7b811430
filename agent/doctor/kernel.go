package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// neededControllers are the cgroup controllers that the kubelet cannot do without.
var neededControllers = []string{"cpu", "memory", "pids"}

func checkCgroups(_ context.Context, m Machine) []Result {
	const check = "cgroups"
	version, have := "v2", strings.Fields(m.read("sys/fs/cgroup/cgroup.controllers"))
	if !m.exists("sys/fs/cgroup/cgroup.controllers") {
		version, have = "v1", nil
		for line := range strings.Lines(m.read("proc/cgroups")) {
			if fields := strings.Fields(line); len(fields) == 4 && fields[3] == "1" {
				have = append(have, fields[0])
			}
		}
	}
	if len(have) == 0 {
		return []Result{{check, Skipped, "neither /sys/fs/cgroup/cgroup.controllers nor /proc/cgroups tells anything", ""}}
	}
	missing := slices.DeleteFunc(slices.Clone(neededControllers), func(name string) bool { return slices.Contains(have, name) })
	switch {
	case len(missing) > 0:
		return []Result{{check, Problem, fmt.Sprintf("version %s without the controllers %s", version, strings.Join(missing, ", ")),
			"turn them on where the kernel is started; for memory that is cgroup_enable=memory"}}
	case version == "v1":
		return []Result{{check, Warning, "version v1", "the kubelet of Kubernetes 1.35 and newer refuses v1 unless failCgroupV1 is false; start the kernel with systemd.unified_cgroup_hierarchy=1"}}
	}
	return []Result{{check, OK, "version v2 with " + strings.Join(have, ", "), ""}}
}

func checkModules(_ context.Context, m Machine) []Result {
	release := m.read("proc/sys/kernel/osrelease")
	known := m.read("lib/modules", release, "modules.builtin") + "\n" + m.read("lib/modules", release, "modules.dep")
	var results []Result
	for _, module := range []struct {
		name, why string
		loaded    bool
	}{
		{"overlay", "containers need it for their file systems", strings.Contains(m.read("proc/filesystems"), "overlay")},
		{"br_netfilter", "without it services cannot be reached from pods of the same machine", m.exists("proc/sys/net/bridge/bridge-nf-call-iptables")},
	} {
		r := Result{Check: "kernel module " + module.name, Verdict: OK}
		switch {
		case module.loaded || m.exists("sys/module", module.name):
			r.Seen = "there"
		case release != "" && strings.Contains(known, "/"+module.name+".ko"):
			r.Seen = "not loaded; it is loaded when it is needed"
		default:
			r.Verdict, r.Seen, r.Advice = Warning, "not there: "+module.why, "modprobe "+module.name+", or install the package with the kernel's modules"
		}
		results = append(results, r)
	}
	return results
}

func checkForwarding(_ context.Context, m Machine) []Result {
	var results []Result
	for _, one := range []struct{ name, path string }{
		{"forwarding IPv4", "proc/sys/net/ipv4/ip_forward"}, {"bridged packets pass iptables", "proc/sys/net/bridge/bridge-nf-call-iptables"},
	} {
		switch m.read(one.path) {
		case "1":
			results = append(results, Result{one.name, OK, "on", ""})
		case "0":
			results = append(results, Result{one.name, Warning, "off; RKE2 and k3s turn it on, and something may turn it off again",
				"look in /etc/sysctl.conf and /etc/sysctl.d for " + strings.ReplaceAll(strings.TrimPrefix(one.path, "proc/sys/"), "/", ".")})
		}
	}
	return results
}

func checkSwap(_ context.Context, m Machine) []Result {
	lines := strings.Split(m.read("proc/swaps"), "\n")
	if len(lines) < 2 {
		return []Result{{"swap", OK, "none", ""}}
	}
	return []Result{{"swap", Warning, fmt.Sprintf("%d in use", len(lines)-1), "the kubelet does not start with swap unless failSwapOn is false; swapoff -a turns it off"}}
}

func checkSecurity(_ context.Context, m Machine) []Result {
	var results []Result
	switch {
	case m.read("sys/fs/selinux/enforce") == "1":
		r := Result{"SELinux", OK, "enforcing, with a policy for RKE2 or k3s", ""}
		policies, _ := os.ReadDir(m.path("usr/share/selinux/packages"))
		if !slices.ContainsFunc(policies, func(e os.DirEntry) bool {
			return strings.HasPrefix(e.Name(), "rke2") || strings.HasPrefix(e.Name(), "k3s")
		}) {
			r.Verdict, r.Seen, r.Advice = Warning, "enforcing, and no policy for RKE2 or k3s is installed", "install rke2-selinux or k3s-selinux before the distribution"
		}
		results = append(results, r)
	case m.exists("sys/fs/selinux/enforce"):
		results = append(results, Result{"SELinux", OK, "permissive", ""})
	}
	if m.read("sys/module/apparmor/parameters/enabled") == "Y" {
		r := Result{"AppArmor", OK, "on", ""}
		if !m.exists("sbin/apparmor_parser") && !m.exists("usr/sbin/apparmor_parser") {
			r.Verdict, r.Seen, r.Advice = Warning, "on, and apparmor_parser is missing", "install the package apparmor, or containers will not start"
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return []Result{{"SELinux, AppArmor", OK, "neither is on", ""}}
	}
	return results
}
