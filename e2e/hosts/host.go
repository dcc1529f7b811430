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
	// Owner is who had it made, in his own words; see HostOptions.
	Owner string
	lab   *Lab
	ip    netip.Addr
}

// HostOptions say what kind of host is made.
type HostOptions struct {
	Name string
	// Owner is remembered with the host. A name that another owner's host has is refused.
	Owner string
	// Files are put onto the host before its first boot: paths from the root, and contents.
	Files map[string]string
	// Disks are folders that lie on a file system of their own, with what the base image has there. A power cut leaves what was synced.
	Disks []string
	// UserData is what cloud-init does at the first boot; without it the host starts without cloud-init.
	UserData []byte
	// AuthorizedKey logs in as root at the host's SSH server, which it has only with such a key: a line of authorized_keys.
	AuthorizedKey string
}

// IP is the host's address in the lab.
func (h *Host) IP() netip.Addr { return h.ip }

// Hosts lists the hosts of the lab by name.
func (l *Lab) Hosts() []*Host {
	s := l.State()
	var out []*Host
	for name, rec := range s.Hosts {
		out = append(out, &Host{Name: name, Owner: rec.Owner, lab: l, ip: address(s.Subnet, rec.Index)})
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
	h, err := l.MakeHost(ctx, HostOptions{Name: name})
	if err != nil {
		return nil, err
	}
	return h, h.Boot(ctx)
}

// MakeHost makes a host that is off, unless the lab has it. What an attempt that was interrupted left is removed first.
func (l *Lab) MakeHost(ctx context.Context, o HostOptions) (*Host, error) {
	if err := checkName("host", o.Name, maxHostName); err != nil {
		return nil, err
	}
	if o.Name == "hub" {
		return nil, errors.New(`host name "hub" is the hub's own`)
	}
	base, err := EnsureBase(ctx, l.cache, l.progress)
	if err != nil {
		return nil, err
	}
	h, err := l.claimHost(o)
	if err != nil {
		return nil, err
	}
	if !h.made() {
		// A file system that was mounted volatile cannot be mounted again.
		if err := errors.Join(l.removeThings(o.Name), removeTree(ctx, h.dir())); err != nil {
			return nil, fmt.Errorf("removing what is left of host %s: %w", o.Name, err)
		}
		if err := h.make(ctx, base, o); err != nil {
			return nil, fmt.Errorf("making host %s: %w", o.Name, err)
		}
	}
	return h, l.writeHostsFiles()
}

// claimHost enters a host into the ledger and gives it an address.
func (l *Lab) claimHost(o HostOptions) (*Host, error) {
	var refused error
	err := l.record(func(s *State) {
		if rec, ok := s.Hosts[o.Name]; ok {
			if rec.Owner != o.Owner {
				refused = fmt.Errorf("lab %q has a host %q already, which belongs to %q", l.Name, o.Name, rec.Owner)
			}
			return
		}
		index, err := pickIndex(s.Hosts)
		if err != nil {
			refused = err
			return
		}
		s.Hosts[o.Name] = HostRecord{Index: index, Owner: o.Owner, Disks: o.Disks}
	})
	if err := errors.Join(err, refused); err != nil {
		return nil, err
	}
	return l.Host(o.Name)
}

func (h *Host) dir() string         { return filepath.Join(h.lab.Dir, "hosts", h.Name) }
func (h *Host) root() string        { return filepath.Join(h.dir(), "root") }
func (h *Host) volatile() string    { return filepath.Join(h.dir(), "volatile") }
func (h *Host) netns() string       { return h.lab.Name + "-" + h.Name }
func (h *Host) group() string       { return "drover-" + h.lab.Name + "-" + h.Name }
func (h *Host) processName() string { return "host-" + h.Name }

// made reports whether the host's file system and network are complete and still there.
func (h *Host) made() bool {
	return h.lab.State().Hosts[h.Name].Made && isMounted(h.root()) && isMounted(h.volatile()) && h.disksMounted() && netnsExists(h.netns())
}

// make makes what a host is booted from: its file system and its network.
func (h *Host) make(ctx context.Context, base string, o HostOptions) error {
	if err := h.makeRoot(base); err != nil {
		return err
	}
	if err := h.makeDisks(ctx); err != nil {
		return err
	}
	if err := h.writeFiles(o.Files); err != nil {
		return err
	}
	if o.UserData != nil {
		if err := h.seed(o.UserData); err != nil {
			return fmt.Errorf("handing cloud-init its user data: %w", err)
		}
	}
	if o.AuthorizedKey != "" {
		if err := h.enableSSH(o.AuthorizedKey); err != nil {
			return fmt.Errorf("enabling the SSH server: %w", err)
		}
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

// writeFiles puts files onto a host that is off: paths from the root, and contents.
func (h *Host) writeFiles(files map[string]string) error {
	for path, text := range files {
		file := h.Path(path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return nil
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
