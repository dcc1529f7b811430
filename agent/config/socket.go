package config

import (
	"fmt"
	"path/filepath"
)

const (
	// DefaultSocket is where a running agent answers the commands.
	DefaultSocket = "/run/rancher-system-agent/agent.sock"
	// SocketOff turns that off.
	SocketOff = "none"
	// maxSocketPath is what fits into an address of the kernel's, its closing zero left out.
	maxSocketPath = 107
)

// SocketPath is where a running agent answers; empty when it does not.
func (c Config) SocketPath() string {
	if c.Socket == SocketOff {
		return ""
	}
	return c.Socket
}

func (c Config) validateSocket() error {
	switch path := c.SocketPath(); {
	case path == "":
		return nil
	case !filepath.IsAbs(path):
		return fmt.Errorf("socket: %q is neither an absolute path nor %q", path, SocketOff)
	case len(path) > maxSocketPath:
		return fmt.Errorf("socket: %q is longer than the %d bytes that a socket's path may have", path, maxSocketPath)
	}
	return nil
}
