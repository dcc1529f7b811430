package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/payload"
)

// plugins are the CNI plugins among the programs.
var plugins = []string{"bridge", "host-local", "loopback", "portmap"}

// unpack makes <dir>/<hash>/bin, unless it is there, points <dir>/current to it and <dir>/previous to the one before, and
// fills <dir>/cni with links to the plugins. Where the control plane runs as static pods, they find their programs in the bin folder, and
// <data-dir>/bin is a link to that. It returns the bin folder.
func unpack(self, dir string) (string, error) {
	a, err := payload.Open(self)
	if err != nil {
		return "", err
	}
	defer a.Close()
	home := filepath.Join(dir, a.Hash)
	bin := filepath.Join(home, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking %s: %w", dir, err)
	}
	if _, err := os.Stat(bin); err != nil {
		tmp := home + "-tmp"
		if err := os.RemoveAll(tmp); err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Join(tmp, "bin"), 0o755); err != nil {
			return "", err
		}
		if err := a.Unpack(filepath.Join(tmp, "bin")); err != nil {
			return "", err
		}
		if err := name(filepath.Join(tmp, "bin")); err != nil {
			return "", err
		}
		if err := os.Rename(tmp, home); err != nil {
			return "", err
		}
	}
	if flavour.Current.StaticPods {
		if err := link(bin, filepath.Join(filepath.Dir(dir), "bin")); err != nil {
			return "", err
		}
	}
	current := filepath.Join(dir, "current")
	old, _ := os.Readlink(current)
	if old == home {
		return bin, nil
	}
	if old != "" {
		if err := link(old, filepath.Join(dir, "previous")); err != nil {
			return "", err
		}
	}
	for _, name := range plugins {
		if err := os.MkdirAll(filepath.Join(dir, "cni"), 0o755); err != nil {
			return "", err
		}
		if err := link(filepath.Join(bin, name), filepath.Join(dir, "cni", name)); err != nil {
			return "", err
		}
	}
	if err := link(home, current); err != nil {
		return "", err
	}
	return bin, forget(dir, home, old)
}

// name gives the program of the components their names.
func name(bin string) error {
	if !flavour.Current.StaticPods {
		return nil
	}
	for _, component := range append([]string{"kubectl"}, config.StaticPods...) {
		if err := link(nodeProgram, filepath.Join(bin, component)); err != nil {
			return err
		}
	}
	return nil
}

func link(to, file string) error {
	tmp := file + ".new"
	_ = os.Remove(tmp)
	if err := os.Symlink(to, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// forget removes all releases but those named. Programs that still run keep their files.
func forget(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if len(e.Name()) == 64 && !slices.Contains(keep, path) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}
