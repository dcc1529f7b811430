package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// MetricsAddress is where metrics and health are told: either a host and port of the loopback device, or a socket. The zero value is
// nowhere.
type MetricsAddress struct {
	TCP    string
	Socket string
}

// String is the form of the configuration.
func (a MetricsAddress) String() string {
	if a.Socket != "" {
		return "unix://" + a.Socket
	}
	return a.TCP
}

var errNotLoopback = errors.New("is not of the loopback device; write 127.0.0.1:<port>, [::1]:<port> or unix:///run/rancher-system-agent/metrics.sock")

// ParseMetricsAddress reads the key metricsAddress. What the metrics tell is for this machine only, so an address that others reach is
// refused.
func ParseMetricsAddress(text string) (MetricsAddress, error) {
	if text == "" {
		return MetricsAddress{}, nil
	}
	if path, found := strings.CutPrefix(text, "unix://"); found {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || filepath.Dir(path) == "/" {
			return MetricsAddress{}, fmt.Errorf("metricsAddress: %q is not unix:// with a plain absolute path, at least two levels deep", text)
		}
		return MetricsAddress{Socket: path}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return MetricsAddress{}, fmt.Errorf("metricsAddress: %q is neither host:port nor unix:///path", text)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return MetricsAddress{}, fmt.Errorf("metricsAddress: %q has no port from 1 to 65535", text)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return MetricsAddress{}, fmt.Errorf("metricsAddress: %q %w", text, errNotLoopback)
	}
	return MetricsAddress{TCP: text}, nil
}
