package systemd

import (
	"os"
	"strings"
)

// OwnUnit returns the name of the service that the manager of the system runs this process in, or empty if there is none.
func OwnUnit() string {
	if !Running() {
		return ""
	}
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return unitOf(string(raw))
}

// unitOf returns the service of a process from its /proc/<pid>/cgroup. The hierarchy of systemd is "0::" with cgroup v2, and has the name
// systemd with v1.
func unitOf(cgroups string) string {
	for line := range strings.Lines(cgroups) {
		id, path, found := strings.Cut(strings.TrimSpace(line), ":/")
		if !found || id != "0:" && !strings.HasSuffix(id, ":name=systemd") {
			continue
		}
		for part := range strings.SplitSeq(path, "/") {
			if strings.HasPrefix(path, "system.slice/") && strings.HasSuffix(part, ".service") {
				return part
			}
		}
	}
	return ""
}
