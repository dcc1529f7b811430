package hosts

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// basePackages is what a host has beyond Debian's minimal system: systemd, what k3s and RKE2 ask a server to have, and cloud-init,
// with which machines begin that somebody else makes. debootstrap does not know that python3-cffi-backend provides what cloud-init's
// cryptography asks for, so it is named.
var basePackages = []string{
	"ca-certificates", "cloud-init", "conntrack", "curl", "dbus", "ethtool", "iproute2", "iptables", "iputils-ping", "kmod", "less",
	"libseccomp2", "nftables", "openssh-server", "procps", "python3-cffi-backend", "socat", "sudo", "systemd", "systemd-sysv",
}

const baseSuite = "bookworm"

//go:embed rootfs
var rootfs embed.FS

// baseName names the base image after everything that it is made from.
func baseName(packages []string, files fs.FS) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n", baseSuite, strings.Join(packages, "\n"))
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(files, path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(raw), raw)
		return err
	})
	return "base-debian12-" + hex.EncodeToString(sum.Sum(nil))[:12], err
}

// EnsureBase returns the folder of the base image, and makes it first if the cache does not hold it. The mirror is
// $DROVER_DEBIAN_MIRROR, or the one that this machine has its packages from, or debootstrap's own choice.
func EnsureBase(ctx context.Context, cache string, progress func(string)) (string, error) {
	files, err := fs.Sub(rootfs, "rootfs")
	if err != nil {
		return "", err
	}
	name, err := baseName(basePackages, files)
	if err != nil {
		return "", err
	}
	base := filepath.Join(cache, name)
	if isDir(base) {
		return base, nil
	}
	unlock, err := fileLock(filepath.Join(cache, "base.lock"), false)
	if errors.As(err, &lockedError{}) {
		progress("waiting for another process that makes the base image")
		unlock, err = fileLock(filepath.Join(cache, "base.lock"), true)
	}
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(base) {
		return base, nil
	}
	tmp := base + ".tmp"
	if err := removeTree(ctx, tmp); err != nil {
		return "", fmt.Errorf("removing what is left of an interrupted base image: %w", err)
	}
	argv := []string{"debootstrap", "--variant=minbase", "--include=" + strings.Join(basePackages, ","), baseSuite, tmp}
	if mirror := debianMirror(ctx); mirror != "" {
		argv = append(argv, mirror)
	}
	_, err = runTo(ctx, func(s string) { progress("debootstrap: " + strings.TrimPrefix(s, "I: ")) }, argv...)
	if err != nil {
		return "", fmt.Errorf("making the Debian base image: %w", err)
	}
	if err := finishBase(tmp, files); err != nil {
		return "", fmt.Errorf("making the Debian base image: %w", err)
	}
	return base, os.Rename(tmp, base)
}

// debianMirror is where to get Debian from, or empty where nothing says so: on a machine that is no Debian of this suite.
func debianMirror(ctx context.Context) string {
	if mirror := os.Getenv("DROVER_DEBIAN_MIRROR"); mirror != "" {
		return mirror
	}
	targets, err := run(ctx, "apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(SITE)", "Created-By: Packages")
	if err != nil {
		return ""
	}
	return mirrorOf(baseSuite, targets)
}

// mirrorOf finds the site of a suite's main component among lines of suite, component and site.
func mirrorOf(suite, targets string) string {
	for line := range strings.Lines(targets) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == suite && fields[1] == "main" {
			return fields[2]
		}
	}
	return ""
}

// finishBase puts the lab's own files into a fresh Debian and leaves out what a host has no use for.
func finishBase(root string, files fs.FS) error {
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(root, path)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		raw, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, raw, 0o644)
	})
	if err != nil {
		return err
	}
	units := filepath.Join(root, "etc/systemd/system")
	for _, unit := range []string{"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer",
		"e2scrub_all.timer", "e2scrub_reap.service", "console-getty.service", "systemd-networkd-wait-online.service"} {
		if err := replaceLink("/dev/null", filepath.Join(units, unit)); err != nil {
			return err
		}
	}
	if err := disableSSH(root); err != nil {
		return err
	}
	wants := filepath.Join(units, "sysinit.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	if err := replaceLink("../lab-prepare.service", filepath.Join(wants, "lab-prepare.service")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "var/log/journal"), 0o755); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(root, "var/cache/apt/archives"))
}

func replaceLink(target, link string) error {
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
