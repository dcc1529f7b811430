package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

// startContainerd starts containerd and waits until it answers. The shims of running pods outlive it.
func (a *agent) startContainerd(ctx context.Context) error {
	regs, err := readRegistries(a.c.PrivateRegistry)
	if err != nil {
		return err
	}
	certsDir := a.data.Agent("etc/containerd/certs.d")
	if err := regs.write(certsDir); err != nil {
		return err
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.data.Agent("containerd"), 0o711); err != nil {
		return err
	}
	conf := containerdConfig(a.data, a.snapshotter(), a.pauseImage(), runc) + regs.auth()
	file := a.data.Agent("etc/containerd/config.toml")
	if err := pki.WriteFile(file, []byte(conf), 0o600); err != nil {
		return err
	}
	logFile := a.data.Agent("containerd/containerd.log")
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	path, err := exec.LookPath("containerd")
	if err != nil {
		return err
	}
	if err := a.Set.Start(child.Child{Name: "containerd", Path: path, Args: []string{"--config", file}, Output: out}); err != nil {
		return err
	}
	for n := 0; ; n++ {
		conn, err := net.Dial("unix", layout.ContainerdSocket)
		if err == nil {
			return conn.Close()
		}
		if n%100 == 99 {
			a.Log.Info("Waiting for containerd to listen", "log", logFile, "error", err)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// snapshotter is the configured one, or overlayfs where that can work: not on a folder that is on an overlay itself, as
// those of a host that is a container are.
func (a *agent) snapshotter() string {
	if a.c.Snapshotter != "" {
		return a.c.Snapshotter
	}
	const overlay = 0x794c7630
	var fs syscall.Statfs_t
	if err := syscall.Statfs(a.data.Agent("containerd"), &fs); err == nil && fs.Type == overlay {
		return "native"
	}
	return "overlayfs"
}

// pauseImage is the image of a pod's sandbox; like all of k3s's own images it may come from another registry.
func (a *agent) pauseImage() string {
	image := a.c.PauseImage
	if r := a.registry(); r != "" && a.ownImage(image) {
		return r + "/" + image
	}
	return image
}

// registry is the one that replaces docker.io for k3s's own images.
func (a *agent) registry() string { return a.settings.SystemDefaultRegistry }

// ownImage reports whether an image is named without a registry.
func (a *agent) ownImage(image string) bool {
	first, _, found := strings.Cut(image, "/")
	return !found || !strings.ContainsAny(first, ".:")
}

func containerdConfig(data layout.Data, snapshotter, pause, runc string) string {
	return fmt.Sprintf(`version = 3
root = %q
state = %q
# Hosts are containers themselves and may not make a process less likely to be killed than it was.

[grpc]
address = %q

[plugins.'io.containerd.cri.v1.runtime']
enable_selinux = false
restrict_oom_score_adj = true
enable_unprivileged_ports = true
enable_unprivileged_icmp = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [%q]
conf_dir = %q

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = %q
SystemdCgroup = false

[plugins.'io.containerd.cri.v1.images']
snapshotter = %q
disable_snapshot_annotations = true

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %q

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = %q
`, data.Agent("containerd"), layout.ContainerdState, layout.ContainerdSocket, data.CNI(), data.Agent("etc/cni/net.d"), runc, snapshotter,
		pause, data.Agent("etc/containerd/certs.d"))
}
