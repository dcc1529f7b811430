package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroups is how this machine's control groups are laid out, for what a host needs.
type cgroups struct {
	// Unified is true with cgroup v2 alone.
	Unified bool
	// Roots are the hierarchies in which a host gets a group of its own before it boots, so that its cgroup namespace begins
	// there: two hosts never share kubelet's "kubepods", and nothing outlives a host. Where systemd runs the machine it does
	// this itself for the hierarchies that it owns.
	Roots []string
	// Systemd is true if systemd runs this machine.
	Systemd bool
}

func readCgroups() (cgroups, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroups{}, err
	}
	return parseCgroups(string(raw), isDir("/run/systemd/system"))
}

func parseCgroups(mountinfo string, systemd bool) (cgroups, error) {
	c := cgroups{Systemd: systemd}
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		point := unescapeMount(left[4])
		if point != "/sys/fs/cgroup" && !strings.HasPrefix(point, "/sys/fs/cgroup/") {
			continue
		}
		owned := systemd
		switch right[0] {
		case "cgroup2":
			c.Unified = point == "/sys/fs/cgroup"
		case "cgroup":
			owned = systemd && slices.Contains(strings.Split(right[2], ","), "name=systemd")
		default:
			continue
		}
		if !owned && !slices.Contains(c.Roots, point) {
			c.Roots = append(c.Roots, point)
		}
	}
	if len(c.Roots) == 0 && !systemd {
		return c, errors.New("no control groups are mounted below /sys/fs/cgroup, and systemd-nspawn needs them")
	}
	return c, nil
}

// procsFiles are the files a process writes 0 to in order to enter the group.
func (c cgroups) procsFiles(name string) []string {
	var out []string
	for _, root := range c.Roots {
		out = append(out, filepath.Join(root, name, "cgroup.procs"))
	}
	return out
}

// make makes the group in every hierarchy.
func (c cgroups) make(name string) error {
	for _, root := range c.Roots {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a control group: %w", err)
		}
		if c.Unified {
			for _, controller := range []string{"cpu", "memory", "pids", "cpuset", "io", "hugetlb"} {
				// A controller that the kernel lacks is left out.
				_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+controller), 0)
			}
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // cgroup v1 lets nobody into a group without these
			parent, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), parent, 0); err != nil {
				return fmt.Errorf("setting up a control group: %w", err)
			}
		}
	}
	return nil
}

// members lists the processes in the group and in all groups below it.
func (c cgroups) members(name string) []int {
	var out []int
	for _, root := range c.Roots {
		_ = filepath.WalkDir(filepath.Join(root, name), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return nil
			}
			raw, _ := os.ReadFile(path)
			for _, f := range strings.Fields(string(raw)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 0 && !slices.Contains(out, pid) {
					out = append(out, pid)
				}
			}
			return nil
		})
	}
	return out
}

// remove removes the group from every hierarchy; its processes must be gone, but may still be on their way out.
func (c cgroups) remove(name string) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := c.removeOnce(name)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c cgroups) removeOnce(name string) error {
	for _, root := range c.Roots {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(root, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, dir := range dirs {
			if err := syscall.Rmdir(dir); err != nil && err != syscall.ENOENT {
				return fmt.Errorf("removing control group %s: %w", dir, err)
			}
		}
	}
	return nil
}
