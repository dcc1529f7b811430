package hosts

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// volatileDirs lie on a tmpfs: a container runtime cannot put its overlays onto the host's own overlay. They survive a
// reboot of the host.
var volatileDirs = []string{
	"/var/lib/containerd", "/var/lib/kubelet",
	"/var/lib/rancher/k3s/agent/containerd", "/var/lib/rancher/rke2/agent/containerd",
}

// Host is one machine of a lab.
type Host struct {
	Name string
	lab  *Lab
	ip   netip.Addr
}

// IP is the host's address in the lab.
func (h *Host) IP() netip.Addr { return h.ip }

// Hosts lists the hosts of the lab by name.
func (l *Lab) Hosts() []*Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil {
		return nil
	}
	var out []*Host
	for name, rec := range l.state.Hosts {
		out = append(out, &Host{Name: name, lab: l, ip: address(l.state.Subnet, rec.Index)})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Host returns a host that exists.
func (l *Lab) Host(name string) (*Host, error) {
	var names []string
	for _, h := range l.Hosts() {
		if h.Name == name {
			return h, nil
		}
		names = append(names, h.Name)
	}
	return nil, fmt.Errorf("lab %q has no host %q; its hosts: %s", l.Name, name, strings.Join(names, ", "))
}

// AddHost makes a host if the lab does not have it, boots it if it is off, and returns when its systemd has started
// everything. Hosts may be added side by side.
func (l *Lab) AddHost(ctx context.Context, name string) (*Host, error) {
	if err := checkName("host", name); err != nil {
		return nil, err
	}
	if name == "hub" {
		return nil, errors.New(`host name "hub" is the hub's own`)
	}
	base, err := EnsureBase(ctx, l.cache, l.progress)
	if err != nil {
		return nil, err
	}
	var pickErr error
	err = l.record(func(s *State) {
		if _, ok := s.Hosts[name]; ok {
			return
		}
		index, err := pickIndex(s.Hosts)
		if err != nil {
			pickErr = err
			return
		}
		s.Hosts[name] = HostRecord{Index: index}
	})
	if err := errors.Join(err, pickErr); err != nil {
		return nil, err
	}
	h, err := l.Host(name)
	if err != nil {
		return nil, err
	}
	if !h.made() {
		if err := l.removeThings(name); err != nil { // of an attempt that was interrupted
			return nil, fmt.Errorf("removing what is left of host %s: %w", name, err)
		}
		if err := h.make(ctx, base); err != nil {
			return nil, fmt.Errorf("making host %s: %w", name, err)
		}
	}
	if err := l.writeHostsFiles(); err != nil {
		return nil, err
	}
	return h, h.Boot(ctx)
}

func (h *Host) dir() string         { return filepath.Join(h.lab.Dir, "hosts", h.Name) }
func (h *Host) root() string        { return filepath.Join(h.dir(), "root") }
func (h *Host) volatile() string    { return filepath.Join(h.dir(), "volatile") }
func (h *Host) netns() string       { return h.lab.Name + "-" + h.Name }
func (h *Host) group() string       { return "drover-" + h.lab.Name + "-" + h.Name }
func (h *Host) processName() string { return "host-" + h.Name }

// made tells whether the host's file system and network are complete and still there.
func (h *Host) made() bool {
	h.lab.mu.Lock()
	made := h.lab.state.Hosts[h.Name].Made
	h.lab.mu.Unlock()
	return made && isMounted(h.root()) && isMounted(h.volatile()) && netnsExists(h.netns())
}

// make makes what a host is booted from: its file system and its network.
func (h *Host) make(ctx context.Context, base string) error {
	if err := h.makeRoot(base); err != nil {
		return err
	}
	if err := h.lab.claimNetns(h.netns(), h.Name); err != nil {
		return err
	}
	// The kernel takes its time to remove the cable of a host that was removed; its number may be in use again before that.
	_, _ = run(ctx, "ip", "-n", h.lab.hubNS(), "link", "del", portOf(h.ip))
	if err := runEach(ctx, hostNetwork(h.lab.hubNS(), h.netns(), h.ip, h.lab.HubIP())); err != nil {
		return err
	}
	return h.lab.record(func(s *State) {
		rec := s.Hosts[h.Name]
		rec.Made = true
		s.Hosts[h.Name] = rec
	})
}

func (h *Host) makeRoot(base string) error {
	if err := os.MkdirAll(h.dir(), 0o755); err != nil {
		return err
	}
	nested, err := onOverlay(h.dir())
	if err != nil {
		return err
	}
	if nested {
		if err := h.mount("tmpfs", h.dir(), "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
	}
	upper, work := filepath.Join(h.dir(), "upper"), filepath.Join(h.dir(), "work")
	for _, dir := range []string{upper, work, h.root(), h.volatile()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// volatile: a lab is thrown away after use, so nothing waits for its disk.
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile", base, upper, work)
	if err := h.mount("overlay", h.root(), "overlay", 0, options); err != nil {
		return err
	}
	if err := h.mount("tmpfs", h.volatile(), "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	for path, text := range map[string]string{
		"etc/hostname":    h.Name + "\n",
		"etc/machine-id":  hex.EncodeToString(id) + "\n",
		"etc/resolv.conf": "",
	} {
		if err := os.WriteFile(filepath.Join(h.root(), path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, b := range h.binds() {
		if err := os.MkdirAll(b.From, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) mount(source, target, fstype string, flags uintptr, options string) error {
	if err := h.lab.add(Thing{Kind: KindMount, Name: target, Host: h.Name}); err != nil {
		return err
	}
	if err := unix.Mount(source, target, fstype, flags, options); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", fstype, target, err)
	}
	return nil
}

func (h *Host) binds() []bind {
	var out []bind
	for _, dir := range volatileDirs {
		out = append(out, bind{From: filepath.Join(h.volatile(), strings.ReplaceAll(dir[1:], "/", "-")), To: dir})
	}
	return out
}

// writeHostsFiles tells every host the names of all: there is no DNS in a lab.
func (l *Lab) writeHostsFiles() error {
	hosts := l.Hosts()
	lines := []string{"127.0.0.1 localhost", "::1 localhost ip6-localhost", l.HubIP().String() + " hub"}
	for _, h := range hosts {
		lines = append(lines, h.ip.String()+" "+h.Name)
	}
	text := []byte(strings.Join(lines, "\n") + "\n")
	for _, h := range hosts {
		file := filepath.Join(h.root(), "etc/hosts")
		if !isMounted(h.root()) {
			continue
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("writing the names of the lab: %w", err)
		}
	}
	return nil
}
