package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
)

// prepare sets what a Kubernetes node needs of its kernel. Each setting fails silently where the kernel lacks it.
func (a *agent) prepare(context.Context) error {
	for file, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
		"net/bridge/bridge-nf-call-iptables": "1", "net/bridge/bridge-nf-call-ip6tables": "1",
		"net/ipv4/conf/all/rp_filter": "0", "fs/inotify/max_user_instances": "8192",
	} {
		if err := os.WriteFile(filepath.Join("/proc/sys", file), []byte(value), 0); err != nil {
			a.Log.Debug("A kernel setting cannot be made", "setting", file, "error", err)
		}
	}
	var err error
	if a.ips, err = NodeIPs(a.c); err != nil {
		return err
	}
	for _, dir := range []string{a.data.Agent("images"), a.data.PodManifests(), a.data.Agent("etc/cni/net.d"), "/var/log/pods"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// NodeIPs are the addresses of this node: the configured ones, or the one that its default route leaves from.
func NodeIPs(c config.Config) ([]string, error) {
	for _, ip := range c.NodeIP {
		if net.ParseIP(ip) == nil {
			return nil, fmt.Errorf("node-ip: %q is no IP address", ip)
		}
	}
	if len(c.NodeIP) > 0 {
		return c.NodeIP, nil
	}
	for _, far := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", far) // sends nothing
		if err != nil {
			continue
		}
		ip := conn.LocalAddr().(*net.UDPAddr).IP
		_ = conn.Close()
		if ip.IsGlobalUnicast() {
			return []string{ip.String()}, nil
		}
	}
	return nil, errors.New("this machine has no default route to find its address by: set node-ip")
}
