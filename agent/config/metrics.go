package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// MetricsAddress is a listen address; one of the fields is set. The zero value disables metrics.
type MetricsAddress struct {
	// TCP is host:port of the loopback interface.
	TCP string
	// Socket is the absolute path of a unix socket.
	Socket string
}

// String is the form in the configuration.
func (a MetricsAddress) String() string {
	if a.Socket != "" {
		return "unix://" + a.Socket
	}
	return a.TCP
}

var errNotLoopback = errors.New(
	"must be a loopback address: use 127.0.0.1:<port>, [::1]:<port> or unix:///run/rancher-system-agent/metrics.sock")

// ParseMetricsAddress parses metricsAddress: host:port, unix://<path>, or empty. Metrics are for this machine only, so other addresses than
// those of the loopback interface are refused.
func ParseMetricsAddress(text string) (MetricsAddress, error) {
	if text == "" {
		return MetricsAddress{}, nil
	}
	if path, found := strings.CutPrefix(text, "unix://"); found {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || filepath.Dir(path) == "/" {
			return MetricsAddress{}, fmt.Errorf(
				"metricsAddress: must be unix:// with a clean absolute path below a directory other than /, got %q", text)
		}
		return MetricsAddress{Socket: path}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return MetricsAddress{}, fmt.Errorf("metricsAddress: must be host:port or unix:///path, got %q", text)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return MetricsAddress{}, fmt.Errorf("metricsAddress: must have a port from 1 to 65535, got %q", text)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return MetricsAddress{}, fmt.Errorf("metricsAddress: %q %w", text, errNotLoopback)
	}
	return MetricsAddress{TCP: text}, nil
}
