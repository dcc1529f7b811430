package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// tools maps the programs that a lab runs on the machine to the Debian packages they come in.
var tools = map[string]string{
	"systemd-nspawn": "systemd-container",
	"debootstrap":    "debootstrap",
	"ip":             "iproute2",
	"nsenter":        "util-linux",
	"mount":          "mount",
	"losetup":        "mount",
	"mkfs.ext4":      "e2fsprogs",
}

// ErrNotRoot is the answer to everybody who may not make namespaces and mounts.
var ErrNotRoot = errors.New("a lab makes namespaces and mounts: run this as root")

// EnsureTools checks that this is root on Linux and installs what is missing with apt-get; more names further
// packages by the program that shows them to be present.
func EnsureTools(ctx context.Context, more map[string]string, progress func(string)) error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	missing, programs := missingPackages(more, func(p string) bool { _, err := exec.LookPath(p); return err == nil })
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this machine has no %s, and no apt-get to install it from", strings.Join(programs, ", "))
	}
	progress("installing " + strings.Join(missing, " "))
	apt := []string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get"}
	install := append(slices.Clone(apt), append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing...)...)
	line := func(s string) { progress("apt-get: " + s) }
	if _, err := runTo(ctx, line, install...); err == nil {
		return nil
	}
	if _, err := runTo(ctx, line, append(slices.Clone(apt), "update", "-q")...); err != nil {
		return fmt.Errorf("installing %s: %w", strings.Join(missing, " "), err)
	}
	if _, err := runTo(ctx, line, install...); err != nil {
		return fmt.Errorf("installing %s: %w", strings.Join(missing, " "), err)
	}
	return nil
}

func missingPackages(more map[string]string, have func(string) bool) (packages, programs []string) {
	for _, set := range []map[string]string{tools, more} {
		for program, pkg := range set {
			if have(program) {
				continue
			}
			programs = append(programs, program)
			if !slices.Contains(packages, pkg) {
				packages = append(packages, pkg)
			}
		}
	}
	slices.Sort(packages)
	slices.Sort(programs)
	return packages, programs
}
