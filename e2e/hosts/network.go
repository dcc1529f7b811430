package hosts

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

const bridge = "lab0"

func netnsPath(name string) string { return filepath.Join("/run/netns", name) }

func netnsExists(name string) bool {
	_, err := os.Lstat(netnsPath(name))
	return err == nil
}

// hubNetwork are the commands that make the hub's namespace and the bridge in it.
func hubNetwork(ns string, addr netip.Addr) [][]string {
	return [][]string{
		{"ip", "netns", "add", ns},
		{"ip", "-n", ns, "link", "set", "lo", "up"},
		{"ip", "-n", ns, "link", "add", bridge, "type", "bridge"},
		{"ip", "-n", ns, "addr", "add", addr.String() + "/24", "dev", bridge},
		{"ip", "-n", ns, "link", "set", bridge, "up"},
	}
}

// hostNetwork are the commands that make a host's namespace, with its one device host0 on the hub's bridge. The default
// route leads to the hub's namespace, which forwards nothing: a host sees a network, and no way out of the lab.
func hostNetwork(hubNS, ns string, addr, hub netip.Addr) [][]string {
	port := portOf(addr)
	return [][]string{
		{"ip", "netns", "add", ns},
		{"ip", "-n", ns, "link", "set", "lo", "up"},
		{"ip", "-n", hubNS, "link", "add", port, "type", "veth", "peer", "name", "host0", "netns", ns},
		{"ip", "-n", hubNS, "link", "set", port, "master", bridge, "up"},
		{"ip", "-n", ns, "addr", "add", addr.String() + "/24", "dev", "host0"},
		{"ip", "-n", ns, "link", "set", "host0", "up"},
		{"ip", "-n", ns, "route", "add", "default", "via", hub.String()},
	}
}

// portOf is the bridge's end of a host's cable.
func portOf(addr netip.Addr) string { return fmt.Sprintf("host%d", addr.As4()[3]) }

func runEach(ctx context.Context, commands [][]string) error {
	for _, argv := range commands {
		if _, err := run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// inNetns runs f on a thread that is inside the namespace. Sockets that f opens stay there; f must not start goroutines
// that open them. A thread that does not find its way back is thrown away.
func inNetns(name string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			own, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			defer own.Close()
			target, err := os.Open(netnsPath(name))
			if err != nil {
				return fmt.Errorf("entering the lab's network: %w", err)
			}
			defer target.Close()
			if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering the lab's network: %w", err)
			}
			err = f()
			if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			return err
		}()
	}()
	return <-done
}

// Dial opens a connection from within the hub's namespace. The address must be an IP and a port: the lab has no DNS.
func (l *Lab) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return nil, fmt.Errorf("dialing in the lab: %w", err)
	}
	var conn net.Conn
	err := inNetns(l.hubNS(), func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// Dial opens a connection from within the host's own namespace, also to its loopback address.
func (h *Host) Dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = inNetns(h.netns(), func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// PortFree reports whether nothing listens on a TCP port in the hub's namespace.
func (l *Lab) PortFree(port int) error {
	return inNetns(l.hubNS(), func() error {
		ln, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return fmt.Errorf("port %d is taken in lab %q: %w", port, l.Name, err)
		}
		return ln.Close()
	})
}
